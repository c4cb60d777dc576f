package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// VerifySandbox checks the chain of one lasting sandbox, every file its events point at, and its entries in the audit
// chain. It changes nothing. The commands that ran in the sandbox are runs, with chains of their own.
func (s *Store) VerifySandbox(ctx context.Context, id string) (*Report, error) {
	v := verifier{store: s}
	if _, err := v.readAudit(); err != nil {
		return nil, err
	}
	return v.sandbox(ctx, id)
}

// lost lists, sorted, the sandboxes that the audit chain knows, says nothing of the removal of, and that are not there.
func (v *verifier) lost() (lost []string) {
	for id, k := range v.known {
		if k.box == nil || k.boxRemoved {
			continue
		}
		if _, err := os.Lstat(v.store.paths.Sandbox(id)); err != nil {
			lost = append(lost, id)
		}
	}
	slices.Sort(lost)
	return lost
}

// sandbox checks one sandbox. What looks wrong is looked at once more with the audit chain read again, because the
// sandbox may have been made, or may have changed, in between.
func (v *verifier) sandbox(ctx context.Context, id string) (*Report, error) {
	rep, err := v.verifySandbox(ctx, id)
	if err != nil || rep.OK {
		return rep, err
	}
	if _, err := v.readAudit(); err != nil {
		return nil, err
	}
	return v.verifySandbox(ctx, id)
}

func (v *verifier) verifySandbox(ctx context.Context, id string) (*Report, error) {
	s, known := v.store, v.known[id]
	dir := s.paths.Sandbox(id)
	info, err := s.readSandbox(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %.80q", ErrNoSandbox, id)
	}
	rep := &Report{Sandbox: id, OK: true, State: State(info.State), Findings: []Finding{}}
	if info.State == SandboxDamaged {
		rep.find(Finding{Problem: ProblemRecord, Path: sandboxFile, Detail: info.Damage})
	}
	var first, pinned Event
	refs := map[string]refAt{}
	check := chainChecker{run: id, find: rep.find, ok: func(e Event) {
		if first.Seq == 0 {
			first = e
		}
		if e.Seq == known.boxHead.Events {
			pinned = e
		}
		for _, f := range e.Files {
			refs[f.Path] = refAt{f, e.Seq}
		}
		noteRepair(rep, e)
	}}
	end, err := readChain(filepath.Join(dir, eventsFile), func(l chainLine) error { check.line(l); return ctx.Err() })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, lerr := os.Lstat(dir); lerr != nil {
			return nil, fmt.Errorf("%w: %s", ErrNoSandbox, id)
		}
		rep.find(Finding{Problem: ProblemFileMissing, Path: eventsFile, Detail: "the event chain is gone"})
	case err != nil:
		return nil, err
	}
	rep.Events, rep.Head = end.lines, check.head
	if end.torn > 0 {
		rep.find(Finding{Problem: ProblemTornTail, Harmless: true, Event: check.seq + 1, Path: eventsFile,
			Detail: fmt.Sprintf("%d bytes of an incomplete event at the end: its writer died; the next one sets them aside", end.torn)})
	}
	rv := runVerifier{rep: rep, first: first, known: known}
	if err := rv.files(ctx, dir, refs); err != nil {
		return nil, err
	}
	switch {
	case known.box == nil && info.State == SandboxCreating:
		// Its host is between making the directory and entering it in the audit chain, or died there.
	case known.box == nil:
		rep.find(Finding{Problem: ProblemUnknownSandbox, Detail: "the audit chain does not know this sandbox"})
	case first.Seq == 1 && known.box.Head != first.Hash:
		rep.find(Finding{Problem: ProblemHeadMismatch, Event: 1, Detail: "the first event is not the one that the audit chain knows: the chain was replaced"})
	}
	if n := known.boxHead.Events; n > 0 && pinned.Hash != known.boxHead.Head {
		rep.find(Finding{Problem: ProblemHeadMismatch, Event: n, Detail: fmt.Sprintf("event %d is not the one that the audit chain knows: the chain was cut or replaced", n)})
	}
	return rep, nil
}
