package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// What a backend says about the run is kept, about others is not, and secrets never are.
func TestBackendLog(t *testing.T) {
	st, err := store.Open(store.Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	id := st.NewID()
	rec, err := st.CreateRun(store.NewRun{ID: id, Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	j := &job{id: id, rec: rec, secrets: newRedactor(&runfile.Definition{})}
	j.secrets.Add("hunter2hunter2")
	path := filepath.Join(rec.Dir(), "backend.log")
	l := &backendLog{j: j}
	l.line(backend.Line{Backend: "b", Sandbox: "another", Level: hclog.Warn, Message: "not ours"})
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was made for nothing")
	}
	l.line(backend.Line{Backend: "b", Sandbox: id, Level: hclog.Warn, Message: "ours", Pairs: []string{"token", "hunter2hunter2"}})
	l.line(backend.Line{Backend: "b", Sandbox: id + "-deps", Level: hclog.Info, Message: "of the dependencies"})
	l.line(backend.Line{Backend: "b", Level: hclog.Error, Message: "of nobody"})
	if err := l.w.Close(); err != nil || l.err != nil {
		t.Fatal(err, l.err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{" warn ours token=", " info of the dependencies\n", " error of nobody\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "hunter2") || strings.Contains(text, "not ours") || strings.Count(text, "\n") != 3 {
		t.Errorf("got\n%s", text)
	}
}
