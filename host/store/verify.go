package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Problem names what is wrong in a [Finding].
type Problem string

// The problems.
const (
	ProblemTornTail     Problem = "torn_tail"     // the last line is incomplete: a writer died; nothing earlier is lost
	ProblemRepaired     Problem = "repaired"      // a torn tail was set aside by a later writer
	ProblemBrokenEvent  Problem = "broken_event"  // a line is not an event, or its hash does not fit its content
	ProblemBrokenLink   Problem = "broken_link"   // an event does not follow from the one before it
	ProblemFileMissing  Problem = "file_missing"  // a file that an event points at is gone
	ProblemFileChanged  Problem = "file_changed"  // it differs in size or content
	ProblemHeadMismatch Problem = "head_mismatch" // result.json or the audit chain names another head
	ProblemUnfinished   Problem = "unfinished"    // the host ended before the run had a result: it was killed, or the disk was full
	ProblemRecord       Problem = "record"        // run.jsonl, definition.json or result.json cannot be read or is not the one recorded
	ProblemRunMissing   Problem = "run_missing"   // the audit chain knows a run that is not there and was not removed by hutch
	ProblemUnknownRun   Problem = "unknown_run"   // a run is there that the audit chain does not know
	ProblemUnknownFile  Problem = "unknown_file"  // a file is there that no event speaks of

	ProblemSandboxMissing Problem = "sandbox_missing" // the audit chain knows a persistent sandbox that is not there and was not removed by hutch
	ProblemUnknownSandbox Problem = "unknown_sandbox" // a persistent sandbox is there that the audit chain does not know
)

// Finding is one thing that is wrong.
type Finding struct {
	Problem Problem `json:"problem"`
	Run     string  `json:"run,omitempty"`     // empty for the audit chain
	Sandbox string  `json:"sandbox,omitempty"` // id of the persistent sandbox whose chain it is
	Event   uint64  `json:"event,omitempty"`   // number of the event, as near as it can be told
	Path    string  `json:"path,omitempty"`
	Detail  string  `json:"detail"`
	// Harmless says that this is what a crash leaves behind and not damage to anything recorded.
	Harmless bool `json:"harmless,omitempty"`
}

// Report is what Verify found about one run, about a persistent sandbox, or about the audit chain (Run and Sandbox are
// empty).
type Report struct {
	Run      string    `json:"run,omitempty"`
	Sandbox  string    `json:"sandbox,omitempty"`
	OK       bool      `json:"ok"` // no finding that is not harmless
	State    State     `json:"state,omitempty"`
	Events   uint64    `json:"events"`
	Files    int       `json:"files"` // files hashed
	Bytes    int64     `json:"bytes"` // bytes hashed
	Head     string    `json:"head,omitempty"`
	Findings []Finding `json:"findings"`

	parts []string // the runs that a loop names
}

func (r *Report) find(f Finding) {
	f.Run, f.Sandbox = r.Run, r.Sandbox
	r.Findings = append(r.Findings, f)
	if !f.Harmless {
		r.OK = false
	}
}

// Verify checks the chain of one run, every file its events point at, its result, and its entries in the audit chain.
// It changes nothing. An error means that it could not look.
func (s *Store) Verify(ctx context.Context, id string) (*Report, error) {
	if _, err := s.Load(id); err != nil {
		return nil, err
	}
	v := verifier{store: s}
	if _, err := v.readAudit(); err != nil {
		return nil, err
	}
	return v.run(ctx, id)
}

// VerifyTree is Verify of a run and, where that is a loop, of the runs it is made of, but for those that hutch removed. It
// calls each with the reports as they come, the loop's first, and stops with the error that each returns.
func (s *Store) VerifyTree(ctx context.Context, id string, each func(*Report) error) error {
	if _, err := s.Load(id); err != nil {
		return err
	}
	v := verifier{store: s}
	if _, err := v.readAudit(); err != nil {
		return err
	}
	top, err := v.run(ctx, id)
	if err != nil {
		return err
	}
	if err := each(top); err != nil {
		return err
	}
	there, err := s.Parts(id) // also what a loop that died had no time to name
	if err != nil {
		return err
	}
	parts := top.parts
	for _, p := range there {
		parts = append(parts, p.ID)
	}
	slices.Sort(parts)
	for _, part := range slices.Compact(parts) {
		if v.known[part].removed || !isRunID(part) {
			continue
		}
		rep := &Report{Run: part, OK: true, Findings: []Finding{}}
		if _, err := os.Lstat(s.paths.Run(part)); errors.Is(err, fs.ErrNotExist) {
			rep.find(Finding{Problem: ProblemRunMissing, Path: s.paths.Run(part), Detail: "it is a part of " + id + ", is gone, and was not removed by hutch"})
		} else if rep, err = v.run(ctx, part); err != nil {
			return err
		}
		if err := each(rep); err != nil {
			return err
		}
	}
	return nil
}

// VerifyAll checks the audit chain, every run, newest first, and every persistent sandbox, and calls each with the reports
// as they come; the audit chain's is the first. It stops with the error that each returns. A head that the audit chain
// had once, kept where the store's writer cannot reach, shows a chain that was cut or recreated since: "" for none.
func (s *Store) VerifyAll(ctx context.Context, head string, each func(*Report) error) error {
	// What is there is listed before the audit chain is read, so that what begins meanwhile is not unknown.
	ids, err := s.runIDs()
	if err != nil {
		return err
	}
	boxes, err := s.Sandboxes()
	if err != nil {
		return err
	}
	v := verifier{store: s}
	audit, err := v.readAudit()
	if err != nil {
		return err
	}
	// What is gone may have been removed after the audit chain was read. Removing is said there before anything goes, so
	// the chain read once more, after the look, knows: and only what was missing then is asked about, for others come and
	// go meanwhile.
	missing, lost := v.missing(ids), v.lost()
	if len(missing) > 0 || len(lost) > 0 {
		if audit, err = v.readAudit(); err != nil {
			return err
		}
		missing = slices.DeleteFunc(missing, func(id string) bool { return v.known[id].removed })
		lost = slices.DeleteFunc(lost, func(id string) bool { return v.known[id].boxRemoved })
	}
	for _, id := range lost {
		audit.find(Finding{Problem: ProblemSandboxMissing, Path: s.paths.Sandbox(id), Detail: fmt.Sprintf("sandbox %s was recorded, is gone, and was not removed by hutch", id)})
	}
	for _, id := range missing {
		audit.find(Finding{Problem: ProblemRunMissing, Path: s.paths.Run(id), Detail: fmt.Sprintf("run %s was recorded, is gone, and was not removed by hutch", id)})
	}
	if head != "" && !v.hashes[head] {
		audit.find(Finding{Problem: ProblemHeadMismatch, Path: s.paths.Audit(), Detail: fmt.Sprintf("it does not hold the head %s, which it is said to have had: it was cut or replaced", short(head))})
	}
	if err := each(audit); err != nil {
		return err
	}
	for _, id := range ids {
		rep, err := v.run(ctx, id)
		if err != nil {
			if _, lerr := os.Lstat(s.paths.Run(id)); errors.Is(lerr, fs.ErrNotExist) {
				continue // removed meanwhile
			}
			return err
		}
		if err := each(rep); err != nil {
			return err
		}
	}
	for _, b := range boxes {
		rep, err := v.sandbox(ctx, b.ID)
		if errors.Is(err, ErrNoSandbox) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		if err := each(rep); err != nil {
			return err
		}
	}
	return nil
}

// missing lists, sorted, the runs that the audit chain knows, says nothing of the removal of, and that are neither in
// ids nor on disk now.
func (v *verifier) missing(ids []string) (missing []string) {
	there := map[string]bool{}
	for _, id := range ids {
		there[id] = true
	}
	for id, k := range v.known {
		if k.removed || there[id] || k.begin == nil && k.end == nil {
			continue
		}
		if _, err := os.Lstat(v.store.paths.Run(id)); err != nil {
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	return missing
}

// verifier checks runs against what the audit chain says about them.
type verifier struct {
	store *Store
	read  time.Time // when the audit chain was read
	known map[string]auditKnown
	// hashes are those of all events of the audit chain.
	hashes map[string]bool
}

// run checks one run. The files of a run that goes on do not change all at once, nor with the audit chain; what looks
// wrong is therefore looked at again as long as somebody writes, and once in any case while the audit chain knows no end
// of the run: the clock of the file system, which tells who writes, may be far behind on a busy machine.
func (v *verifier) run(ctx context.Context, id string) (rep *Report, err error) {
	for try := range 10 {
		rep, err = v.store.verifyRun(ctx, id, v.known)
		if err != nil || rep.OK {
			return rep, err
		}
		// Removing takes the directory away at once: what was missing of it a moment ago is no damage.
		if _, err := os.Lstat(v.store.paths.Run(id)); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s was removed meanwhile", ErrNotFound, id)
		}
		if (try > 0 || v.known[id].end != nil) && !v.writtenSince(id) {
			return rep, nil
		}
		if _, err := v.readAudit(); err != nil {
			return nil, err
		}
	}
	return rep, nil
}

// writtenSince reports whether the run was written to since the audit chain was read, or within the coarseness of the
// file system's clock before that.
func (v *verifier) writtenSince(id string) bool {
	for _, name := range []string{eventsFile, infoFile, "."} {
		fi, err := os.Lstat(filepath.Join(v.store.paths.Run(id), name))
		if err == nil && fi.ModTime().After(v.read.Add(-50*time.Millisecond)) {
			return true
		}
	}
	return false
}

// auditKnown is what the audit chain knows about one run.
type auditKnown struct {
	begin   *auditBegin
	end     *auditEnd
	removed bool

	// The same about the persistent sandbox of this id, which a run may have left.
	box        *auditBegin
	boxHead    auditHead // the furthest
	boxRemoved bool
}

// readAudit checks the audit chain and keeps what it says about each run.
func (v *verifier) readAudit() (*Report, error) {
	v.read = time.Now()
	rep := &Report{OK: true, Findings: []Finding{}}
	known, hashes := map[string]auditKnown{}, map[string]bool{}
	v.known, v.hashes = known, hashes
	path := v.store.paths.Audit()
	check := chainChecker{find: rep.find, ok: func(e Event) {
		hashes[e.Hash] = true
		k := known[e.Run]
		switch e.Type {
		case EventBegin:
			var b auditBegin
			if json.Unmarshal(e.Data, &b) == nil {
				k.begin = &b
			}
		case EventEnd:
			var end auditEnd
			if json.Unmarshal(e.Data, &end) == nil {
				k.end = &end
				if box := end.Sandbox; box != nil {
					b := known[box.ID]
					b.boxHead = b.boxHead.further(box.auditHead)
					known[box.ID] = b
				}
			}
		case EventRemoved:
			k.removed = true
		case EventSandboxBegin:
			var b auditBegin
			if json.Unmarshal(e.Data, &b) == nil {
				k.box = &b
			}
		case EventSandboxHead:
			var h auditHead
			if json.Unmarshal(e.Data, &h) == nil {
				k.boxHead = k.boxHead.further(h)
			}
		case EventSandboxRemoved:
			k.boxRemoved = true
		default:
			noteRepair(rep, e)
			return
		}
		known[e.Run] = k
	}}
	end, err := readChain(path, func(l chainLine) error { check.line(l); return nil })
	if errors.Is(err, fs.ErrNotExist) {
		return rep, nil // nothing has run yet; runs that are there all the same will show as unknown
	}
	if err != nil {
		return nil, err
	}
	rep.Events, rep.Head = end.lines, check.head
	if end.torn > 0 {
		rep.find(Finding{Problem: ProblemTornTail, Harmless: true, Event: check.seq + 1, Path: path,
			Detail: fmt.Sprintf("%d bytes of an incomplete entry at the end: a writer died; the next one sets them aside", end.torn)})
	}
	return rep, nil
}

func noteRepair(rep *Report, e Event) {
	if e.Type == EventRepaired {
		rep.find(Finding{Problem: ProblemRepaired, Harmless: true, Event: e.Seq, Detail: "an incomplete event before this one was set aside: " + string(e.Data)})
	}
}
