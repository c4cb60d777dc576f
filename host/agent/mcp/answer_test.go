package mcp

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/host/workspace/files"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		`{"exit_code":0,"stdout":"a \"b\"\nc\n","big":12345678901234567890,"none":null}`: "exit_code: 0\nstdout:\na \"b\"\nc\nbig: 12345678901234567890\nnone: null",
		`{"entries":[{"path":"x","ok":true},{"path":"y"}],"empty":[]}`:                   "entries:\n  -\n    path: x\n    ok: true\n  -\n    path: y\nempty:",
		`["a","b"]`: "- a\n- b",
		`"text"`:    "text",
	} {
		if got := plain(json.RawMessage(in)).Content[0].(*mcp.TextContent).Text; got != want {
			t.Errorf("%s is\n%s\nwant\n%s", in, got, want)
		}
	}
}

// TestProgress has a client that asks for it hear of a command that takes long, until it ends.
func TestProgress(t *testing.T) {
	was := progressEvery
	progressEvery = 10 * time.Millisecond
	t.Cleanup(func() { progressEvery = was })
	w := newWorld(t, nil)
	box := w.create(nil)
	ended := make(chan error, 1)
	go func() {
		p := &mcp.CallToolParams{Name: "exec", Arguments: m{"sandbox": box, "command": "until test -e stop; do sleep 0.01; done", "wait": "2m"}}
		p.SetProgressToken("token")
		_, err := w.client.CallTool(t.Context(), p)
		ended <- err
	}()
	for range 2 {
		select {
		case p := <-w.progress:
			if p.ProgressToken != "token" || p.Progress <= 0 || !strings.HasPrefix(p.Message, "exec: ") {
				t.Errorf("it hears %+v", p)
			}
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		}
	}
	w.call("write_file", m{"sandbox": box, "path": "stop", "content": ""}, nil, "")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestIgnoredFiles has list and grep pass over what git ignores, unless they are asked for it.
func TestIgnoredFiles(t *testing.T) {
	w := newWorld(t, nil)
	for name, text := range map[string]string{".gitignore": "out/\n", "out/x.txt": "needle\n", ".git/config": "needle\n", "in.txt": "needle\n"} {
		p := filepath.Join(w.project, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	box := w.create(nil)
	for _, tt := range []struct {
		args m
		want int
	}{{m{}, 1}, {m{"ignored": true}, 3}, {m{"paths": []string{"out"}}, 1}} {
		tt.args["sandbox"], tt.args["pattern"] = box, "needle"
		var found files.Matches
		w.call("grep", tt.args, &found, "")
		if found.Count != tt.want {
			t.Errorf("%v finds %+v", tt.args, found)
		}
	}
	var list files.Listing
	w.call("list_files", m{"sandbox": box}, &list, "")
	for _, e := range list.Entries {
		if strings.HasPrefix(e.Path, ".git/") || strings.HasPrefix(e.Path, "out") {
			t.Errorf("it lists %s", e.Path)
		}
	}
}
