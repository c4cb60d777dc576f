package backend

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

func TestRunThroughAPlugin(t *testing.T) {
	p := pool(t, nil, "plain")
	ctx := context.Background()
	start := time.Now()
	b, err := p.Get(ctx, "plain")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started after %s", time.Since(start))
	sb, err := b.Create(ctx, &sdk.CreateRequest{ID: "one", Owner: "test", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("created after %s", time.Since(start))
	var out bytes.Buffer
	exit, err := sb.Exec(ctx, &client.Command{Argv: []string{"/bin/sh", "-c", "echo hello; exit 3"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ended after %s", time.Since(start))
	if exit.Code != 3 || out.String() != "hello\n" {
		t.Errorf("got %+v and %q, want code 3 and hello", exit, out.String())
	}
	if err := sb.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("destroyed after %s", time.Since(start))
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("closed after %s", time.Since(start))
}
