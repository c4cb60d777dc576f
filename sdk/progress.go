package sdk

import "context"

type progressKey struct{}

// Progress returns what tells the user how far the call is that ctx belongs to, as [CreateRequest.Progress] does; it is never
// nil. It is heard of a [Getter]'s Get.
func Progress(ctx context.Context) func(step string, done, total int64) {
	if tell, ok := ctx.Value(progressKey{}).(func(string, int64, int64)); ok && tell != nil {
		return tell
	}
	return func(string, int64, int64) {}
}

// WithProgress returns a context for calls whose progress is told to tell, which may be called concurrently with them.
func WithProgress(ctx context.Context, tell func(step string, done, total int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}
