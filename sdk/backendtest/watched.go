package backendtest

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// calls are the calls of one check that the backend has not answered yet. It travels in the check's context.
type calls struct {
	mu   sync.Mutex
	open map[*time.Time]string // method by when it began
}

type callsKey struct{}

// begin notes a call of the check that ctx belongs to; the result notes its end and may be called twice.
func begin(ctx context.Context, method string) (end func()) {
	c, ok := ctx.Value(callsKey{}).(*calls)
	if !ok {
		return func() {}
	}
	since := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[&since] = path.Base(method)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, &since)
	}
}

// waiting says for which calls the check waits; call is the name of the one that it has waited for longest.
func (c *calls) waiting() (call, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var since []*time.Time
	for t := range c.open {
		since = append(since, t)
	}
	slices.SortFunc(since, func(a, b *time.Time) int { return a.Compare(*b) })
	if len(since) == 0 {
		return "", "the backend has answered every call"
	}
	var parts []string
	for _, t := range since {
		parts = append(parts, fmt.Sprintf("%s for %s", c.open[t], time.Since(*t).Round(100*time.Millisecond)))
	}
	return c.open[since[0]], "the backend has not answered " + strings.Join(parts, ", ")
}

// watched is a connection whose calls are noted.
type watched struct{ grpc.ClientConnInterface }

func (w watched) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	defer begin(ctx, method)()
	return w.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (w watched) NewStream(
	ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	end := begin(ctx, method)
	s, err := w.ClientConnInterface.NewStream(ctx, d, method, opts...)
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(s.Context(), end)
	return s, nil
}

// mostStacks bounds what is shown of goroutines, in bytes.
const mostStacks = 3 << 10

// servingStacks are the goroutines of this process in which a backend answers a call, for a message.
func servingStacks() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var b strings.Builder
	seen := map[string]bool{}
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		if !strings.Contains(g, "hutch/sdk.guard(") {
			continue
		}
		// What lies below the SDK's own handler says nothing to an author.
		if at := strings.Index(g, "github.com/hutch-run/hutch/sdk."); at > 0 {
			g = g[:at]
		}
		where := ""
		for line := range strings.Lines(g) {
			if strings.HasPrefix(line, "\t") { // file and line
				where += line
			}
		}
		if seen[where] {
			continue
		}
		seen[where] = true
		if b.Len()+len(g) > mostStacks {
			b.WriteString("… and more\n")
			break
		}
		b.WriteString(strings.TrimSpace(g) + "\n\n")
	}
	return strings.TrimSpace(b.String())
}
