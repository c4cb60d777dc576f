// Package doctor says whether this machine can run sandboxes, and how to make it.
//
// It looks at hutch's own place on disk and then asks every backend it finds to
// probe the machine by doing: see sdk.Backend.Check. Backends are asked side by
// side, since a probe may take seconds.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/confined"
)

// Schema identifies the JSON of a [Report].
const Schema = "hutch.doctor/v1"

// lowSpace is the free space below which a store is worth a warning: 1 GiB.
const lowSpace = 1 << 30

// Report is all that was found.
type Report struct {
	Schema   string    `json:"schema"`
	Store    []Finding `json:"store"`
	Backends []Backend `json:"backends"` // sorted by name
}

// Backend is what one backend says of this machine.
type Backend struct {
	Name      string    `json:"name"`
	Version   string    `json:"version,omitempty"`
	Isolation string    `json:"isolation,omitempty"`
	Path      string    `json:"path,omitempty"`
	Able      bool      `json:"able"` // it can make sandboxes here
	Findings  []Finding `json:"findings"`
}

// Finding is one thing that was looked at.
type Finding struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, warning or error
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // the command or the change that mends it
}

// Able reports whether the store and at least one backend work.
func (r *Report) Able() bool {
	if failed(r.Store) {
		return false
	}
	for _, b := range r.Backends {
		if b.Able {
			return true
		}
	}
	return false
}

// strongest is the isolation of the strongest backend that works here.
func (r *Report) strongest() sdk.Isolation {
	best := sdk.IsolationNone
	for _, b := range r.Backends {
		if l := sdk.Isolation(b.Isolation); b.Able && l.Rank() > best.Rank() {
			best = l
		}
	}
	return best
}

// Pool is the part of [backend.Pool] that is needed here.
type Pool interface {
	Names() []string
	Get(ctx context.Context, name string) (*backend.Backend, error)
}

// Examine looks at the store at home ("" for the user's own) and at all backends
// of the pool. The report is complete when ctx has not ended.
func Examine(ctx context.Context, s *store.Store, pool Pool) *Report {
	r := &Report{Schema: Schema, Store: disk(s.Paths()), Backends: []Backend{}}
	names := pool.Names()
	if len(names) == 0 {
		r.Store = append(r.Store, Finding{Name: "backends", Status: string(sdk.SeverityError), Detail: "none is installed",
			Fix: "make install puts the bundled ones beside hutch, in ../libexec/hutch; HUTCH_BACKEND_PATH names other places"})
	}
	r.Backends = make([]Backend, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() { r.Backends[i] = probe(ctx, pool, name) })
	}
	wait.Wait()
	if f := around(r); f != nil {
		r.Store = append(r.Store, *f)
	}
	return r
}

// around is what there is to say about a container that hutch runs in; nil outside of containers.
func around(r *Report) *Finding {
	engine, walled := confined.Engine(), confined.Here()
	if engine == "" && !walled {
		return nil
	}
	f := &Finding{Name: "container", Status: string(sdk.SeverityOK), Detail: cmp.Or(engine, "unknown")}
	switch {
	case !walled:
		f.Detail += ", with privileges"
	case r.Able() && r.strongest().Rank() >= sdk.IsolationNamespace.Rank():
		f.Detail += ", without privileges, and sandboxes can be made all the same"
	case r.Able() && r.strongest() == sdk.IsolationProcess:
		f.Status, f.Detail, f.Fix = string(sdk.SeverityWarning),
			f.Detail+", without the privileges that namespaces need: only landlock works", confined.Fix()
	default:
		f.Status, f.Detail, f.Fix = string(sdk.SeverityWarning), f.Detail+", without the privileges that sandboxes need",
			confined.Fix()
	}
	return f
}

// probe asks one backend.
func probe(ctx context.Context, pool Pool, name string) Backend {
	b := Backend{Name: name, Findings: []Finding{}}
	plugin, err := pool.Get(ctx, name)
	if err != nil {
		b.Findings = append(b.Findings, broken("start", err))
		return b
	}
	b.Version, b.Isolation, b.Path = plugin.Facts.Version, string(plugin.Facts.Isolation), plugin.Path
	findings, err := plugin.Check(ctx)
	for _, f := range findings {
		b.Findings = append(b.Findings, Finding{Name: f.Name, Status: string(f.Status), Detail: f.Detail, Fix: f.Fix})
	}
	if err != nil {
		b.Findings = append(b.Findings, broken("check", err))
	}
	b.Able = !failed(b.Findings)
	return b
}

// broken turns an error into a finding, its fix apart from its text.
func broken(name string, err error) Finding {
	f := Finding{Name: name, Status: string(sdk.SeverityError), Detail: err.Error()}
	var e *sdk.Error
	if errors.As(err, &e) {
		f.Fix = e.Fix
	}
	return f
}

// disk looks at the directories that hold the records of runs.
func disk(p store.Paths) []Finding {
	var found []Finding
	for _, d := range []struct{ name, path string }{{"records", p.Data}, {"cache", p.Cache}} {
		f := Finding{Name: d.name, Status: string(sdk.SeverityOK)}
		var fs unix.Statfs_t
		err := os.MkdirAll(d.path, 0o700)
		if err == nil {
			err = writable(d.path)
		}
		if err == nil {
			err = unix.Statfs(d.path, &fs)
		}
		free := fs.Bavail * uint64(fs.Bsize)
		switch {
		case err != nil:
			f.Status, f.Detail, f.Fix = string(sdk.SeverityError), err.Error(),
				"make it writable, or set HUTCH_HOME to a directory of yours"
		case free < lowSpace:
			f.Status = string(sdk.SeverityWarning)
			f.Detail = fmt.Sprintf("%s: only %s free", d.path, humanize.IBytes(free))
			f.Fix = "hutch gc --older-than 30d removes old runs"
		default:
			f.Detail = fmt.Sprintf("%s: %s free", d.path, humanize.IBytes(free))
		}
		found = append(found, f)
	}
	return found
}

// writable makes and removes a file.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	return f.Close()
}

func failed(findings []Finding) bool {
	for _, f := range findings {
		if f.Status == string(sdk.SeverityError) {
			return true
		}
	}
	return false
}
