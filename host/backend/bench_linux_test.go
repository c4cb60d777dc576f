package backend

import (
	"context"
	"io"
	"os/exec"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// BenchmarkExec is one command in a sandbox that exists; what the wire costs is the
// difference to BenchmarkBareExec.
func BenchmarkExec(b *testing.B) {
	p := pool(b, nil, "plain")
	ctx := context.Background()
	be, err := p.Get(ctx, "plain")
	if err != nil {
		b.Fatal(err)
	}
	sb, err := be.Create(ctx, &sdk.CreateRequest{ID: "one", StateDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := sb.Exec(ctx, &client.Command{Argv: []string{"/bin/true"}, Stdout: io.Discard, Stderr: io.Discard}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBareExec is the same command without hutch.
func BenchmarkBareExec(b *testing.B) {
	for b.Loop() {
		cmd := exec.Command("/bin/true")
		cmd.Stdout, cmd.Stderr = writerOnly{}, writerOnly{}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

type writerOnly struct{}

func (writerOnly) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkLaunch is the life of a plugin process without a call but the last.
func BenchmarkLaunch(b *testing.B) {
	dir, cache := install(b, "plain"), b.TempDir()
	ctx := context.Background()
	for b.Loop() {
		p := NewPool(Options{Dir: shortDir(b), CacheDir: cache, Paths: []string{dir}})
		if _, err := p.Get(ctx, "plain"); err != nil {
			b.Fatal(err)
		}
		if err := p.Close(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStream is a gigabyte of output.
func BenchmarkStream(b *testing.B) {
	p := pool(b, nil, "plain")
	ctx := context.Background()
	be, err := p.Get(ctx, "plain")
	if err != nil {
		b.Fatal(err)
	}
	sb, err := be.Create(ctx, &sdk.CreateRequest{ID: "one", StateDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	const size = 1 << 30
	b.SetBytes(size)
	for b.Loop() {
		var n count
		if _, err := sb.Exec(ctx, &client.Command{Argv: []string{"head", "-c", "1073741824", "/dev/zero"}, Stdout: &n}); err != nil || n != size {
			b.Fatal(n, err)
		}
	}
}

type count int64

func (c *count) Write(p []byte) (int, error) { *c += count(len(p)); return len(p), nil }
