package sandbox

import (
	"fmt"

	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// Subject is the sandbox as a review looks at it. It is an error when nothing in the workspace waits for a review.
func (s *Sandbox) Subject() (review.Subject, error) {
	r, err := subject(s.Record, s.Ready(), s.Base)
	if err == nil && s.Facts().Has(sdk.CapChanges) && s.Facts().Has(sdk.CapGet) {
		r.Remote = s.Sandbox
	}
	return r, err
}

// Subject is that of a [Sandbox]. Where the layers can be read on this host, no backend is started.
func (l *Look) Subject() (review.Subject, error) {
	if l.open != nil {
		return l.open.Subject()
	}
	return subject(l.Record, l.ready, l.base)
}

func subject(info store.SandboxInfo, ready sdk.Ready, base string) (review.Subject, error) {
	w := info.Workspace
	none := func(format string, args ...any) (review.Subject, error) {
		return review.Subject{}, fmt.Errorf("sandbox %s: there is nothing to review: %s", nameOf(info), fmt.Sprintf(format, args...))
	}
	switch {
	case w.Source == "":
		return none("its workspace was not made from a project; `hutch cp` copies files out of it")
	case w.Mode == string(sdk.WorkspaceShared):
		return none("its workspace is shared, so that all it writes is in %s at once", w.Source)
	case w.Mode == string(sdk.WorkspaceReadOnly):
		return none("its workspace is read-only")
	}
	return review.Subject{
		Name: nameOf(info), ID: info.ID, Project: w.Source, Layers: ready.Layers, Ready: ready,
		ReadBase: func() (*review.Base, error) { return review.ReadBase(base) },
	}, nil
}
