package doctor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// brokenPool has backends that do not start.
type brokenPool map[string]error

func (p brokenPool) Names() []string {
	var names []string
	for name := range p {
		names = append(names, name)
	}
	return names
}

func (p brokenPool) Get(_ context.Context, name string) (*backend.Backend, error) {
	return nil, p[name]
}

func TestExamineReportsBackendsThatDoNotStart(t *testing.T) {
	s, err := store.Open(store.Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	why := sdk.Errorf(sdk.ReasonMissing, "acme is not installed").WithFix("apt-get install acme")
	r := Examine(t.Context(), s, brokenPool{"acme": errors.Join(why)})
	if r.Able() {
		t.Error("able without any backend")
	}
	if len(r.Backends) != 1 || len(r.Backends[0].Findings) != 1 {
		t.Fatalf("%+v; want one finding of one backend", r.Backends)
	}
	f := r.Backends[0].Findings[0]
	if f.Status != "error" || !strings.Contains(f.Detail, "acme is not installed") || f.Fix != "apt-get install acme" {
		t.Errorf("%+v; want the error with its fix", f)
	}
}

func TestExamineWithoutBackends(t *testing.T) {
	s, err := store.Open(store.Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := Examine(t.Context(), s, brokenPool{})
	if r.Able() || !failed(r.Store) {
		t.Errorf("%+v; want an error that no backend is installed", r)
	}
}

func TestUnwritableStore(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found := disk(store.Paths{Data: file + "/below", Cache: t.TempDir()})
	if found[0].Status != "error" || found[0].Fix == "" {
		t.Errorf("%+v; want an error with a fix", found[0])
	}
	if found[1].Status == "error" {
		t.Errorf("%+v; want ok", found[1])
	}
}
