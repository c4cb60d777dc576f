package sdk

import (
	"context"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/hutch-run/hutch/sdk/internal/handshake"
)

// logger writes JSON lines on the descriptor 2 that the process was started with.
// It is made before go-plugin replaces os.Stderr by a pipe that nobody reads.
var logger = sync.OnceValue(func() hclog.Logger {
	level := hclog.LevelFromString(os.Getenv(handshake.EnvLogLevel))
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: stderr(), JSONFormat: true})
})

// stderr is the standard error that the process was started with.
var stderr = sync.OnceValue(func() *os.File { return os.Stderr })

// Logger returns the logger of the backend. What it writes goes to the log of the
// run; users see warnings and errors.
func Logger() hclog.Logger { return logger() }

type logKey struct{}

// Log returns the logger for the call that ctx belongs to: [Logger] with the
// sandbox named.
func Log(ctx context.Context) hclog.Logger {
	if l, ok := ctx.Value(logKey{}).(hclog.Logger); ok {
		return l
	}
	return Logger()
}

func withLog(ctx context.Context, l hclog.Logger) context.Context {
	return context.WithValue(ctx, logKey{}, l)
}
