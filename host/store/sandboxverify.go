package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// VerifySandbox checks the chain of one persistent sandbox, every file its events point at, and its entries in the audit
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

// sandbox checks one sandbox. What looks wrong is looked at again, with the audit chain read again, as long as somebody
// writes events meanwhile.
func (v *verifier) sandbox(ctx context.Context, id string) (rep *Report, err error) {
	length := func() int64 {
		fi, err := os.Lstat(filepath.Join(v.store.paths.Sandbox(id), eventsFile))
		if err != nil {
			return -1
		}
		return fi.Size()
	}
	for n := range 10 {
		before := length()
		rep, err = v.verifySandbox(ctx, id)
		if err != nil || rep.OK || n > 0 && length() == before {
			return rep, err
		}
		if _, err := v.readAudit(); err != nil {
			return nil, err
		}
	}
	return rep, nil
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
	told, err := readTold(ctx, dir, id, known.boxHead.Events, rep)
	if err != nil {
		if _, lerr := os.Lstat(dir); lerr != nil {
			return nil, fmt.Errorf("%w: %s", ErrNoSandbox, id)
		}
		return nil, err
	}
	if told.torn > 0 {
		rep.find(Finding{Problem: ProblemTornTail, Harmless: true, Event: told.seq + 1, Path: eventsFile,
			Detail: fmt.Sprintf("%d bytes of an incomplete event at the end: its writer died; the next one sets them aside", told.torn)})
	}
	switch {
	case known.box == nil && info.State == SandboxCreating:
		// Its host is between making the directory and entering it in the audit chain, or died there.
	case known.box == nil:
		rep.find(Finding{Problem: ProblemUnknownSandbox, Detail: "the audit chain does not know this sandbox"})
	case told.first.Seq == 1 && known.box.Head != told.first.Hash:
		rep.find(Finding{Problem: ProblemHeadMismatch, Event: 1, Detail: "the first event is not the one that the audit chain knows: the chain was replaced"})
	}
	if n := known.boxHead.Events; n > 0 && told.hash != known.boxHead.Head {
		rep.find(Finding{Problem: ProblemHeadMismatch, Event: n, Detail: fmt.Sprintf("event %d is not the one that the audit chain knows: the chain was cut or replaced", n)})
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, diskError("read", dir, err)
	}
	defer root.Close()
	if err := told.files(ctx, root, rep); err != nil {
		return nil, err
	}
	if told.broken || !slices.ContainsFunc(told.first.Files, func(f FileRef) bool { return f.Path == sandboxFile }) {
		return rep, nil // what more there is cannot be told; or it is of a version that told less
	}
	input, err := readInputRefs(root)
	if err != nil {
		rep.find(Finding{Problem: ProblemRecord, Path: sandboxPrivateFile, Detail: err.Error()})
	}
	for _, f := range input {
		if err := (refAt{FileRef: f}).verify(ctx, root, rep); err != nil {
			return nil, err
		}
	}
	return rep, strangers(ctx, root, rep, func(name string) bool {
		switch name {
		case eventsFile:
			return true
		case sandboxLockFile, filesLockFile:
			fi, err := root.Lstat(name)
			return err == nil && fi.Mode().IsRegular() && fi.Size() == 0
		}
		if told.refs[name].Path != "" || slices.ContainsFunc(input, func(f FileRef) bool { return f.Path == name }) {
			return true
		}
		// What is being made, or was killed then, has files that no event has spoken of yet.
		return info.State == SandboxCreating && (below(name, codeDir) || below(name, sandboxInputDir) || name == baseFile)
	})
}
