package store

import (
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
)

// End is how a run ended, for its last event and its short record.
type End struct {
	OK       bool
	Cause    string
	ExitCode *int      // nil when no program ended
	Data     any       // further data of the last event
	Files    []FileRef // further files of the last event; logs, code and outputs which earlier events named need not be repeated

	// Sandbox is the persistent sandbox that the run was in, nil for none. The audit chain learns with the run's end how far
	// the sandbox's chain goes by what this process appended to it, so that what it says about the run cannot be cut off.
	Sandbox *SandboxRecord
}

// endData is the data of [EventEnd] in a run's chain.
type endData struct {
	OK       bool   `json:"ok"`
	Cause    string `json:"cause"`
	ExitCode *int   `json:"exit_code"`
	More     any    `json:"more,omitempty"`
}

// ChainRef names the head of an event chain.
type ChainRef struct {
	Path   string `json:"path"`   // relative to the run's directory
	Events uint64 `json:"events"` // how many
	Head   string `json:"head"`   // hash of the last one
}

// Finish appends [EventEnd], writes result.json from what result returns, given the head of the chain for it to hold,
// and enters both in the audit chain. When it returns nil all of that is on disk; files that events point at are not
// forced there. The run takes no events afterwards, also when Finish failed: it then shows as interrupted once the
// process is gone.
func (r *Run) Finish(end End, result func(ChainRef) (any, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errDone
	}
	defer func() { _ = r.closeLocked() }() // everything that matters was synced and said by then

	// The last event stands alone at the end, however many files there are.
	if len(end.Files) > 0 {
		if _, _, err := r.appendEvent(EventOutputs, nil, end.Files); err != nil {
			return err
		}
	}
	seq, head, err := r.appendEvent(EventEnd, endData{OK: end.OK, Cause: end.Cause, ExitCode: end.ExitCode, More: end.Data}, r.unsaidLogs())
	if err != nil {
		return err
	}
	v, err := result(ChainRef{Path: eventsFile, Events: seq, Head: head})
	if err != nil {
		return fmt.Errorf("result of run %s: %w", r.info.ID, err)
	}
	data, err := marshalIndent(v)
	if err != nil {
		return fmt.Errorf("result of run %s: %w", r.info.ID, err)
	}
	// The last line of run.jsonl comes last of all, and the audit chain knows before what it will be.
	now, last := r.store.now().UTC(), r.info
	last.State, last.OK, last.Cause, last.ExitCode, last.Ended = StateFinished, end.OK, end.Cause, end.ExitCode, &now
	_, record, err := encodeInfo(r.head, last)
	if err != nil {
		return err
	}
	known := auditEnd{Events: seq, Head: head, ResultSize: int64(len(data)), ResultSHA256: sumHex(data), Record: record}
	if end.Sandbox != nil {
		known.Sandbox = end.Sandbox.said()
	}
	entry, err := auditEntry(r.info.ID, EventEnd, known)
	if err != nil {
		return err
	}
	// The contents go to the disk in one wait, before the result takes its name.
	res := newAtomicFile(filepath.Join(r.dir, resultFile))
	defer res.abandon()
	var contents, names errgroup.Group
	contents.Go(r.chain.sync)
	contents.Go(func() error { return res.write(data, true) })
	if err := contents.Wait(); err != nil {
		return err
	}
	if err := res.place(); err != nil {
		return err
	}
	if err := r.store.enter(false, entry); err != nil {
		return err
	}
	// The short record comes last: what says "finished" is finished.
	r.info = last
	if err := r.saveInfo(); err != nil {
		return err
	}
	names.Go(r.store.syncAudit)
	names.Go(r.file.Sync)
	names.Go(func() error { return syncDir(r.dir) })
	if err := names.Wait(); err != nil {
		return diskError("sync", r.dir, err)
	}
	return nil
}

// unsaidLogs are the files of logs that no event points at yet: what the backend said, and how much of a stream was
// dropped.
func (r *Run) unsaidLogs() (refs []FileRef) {
	names, _ := readNames(r.dir)
	slices.Sort(names)
	for _, name := range names {
		if isLogFile(name) && !r.refs[name] {
			if ref, err := r.Ref(name); err == nil {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}
