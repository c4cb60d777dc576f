package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
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
	ProblemRecord       Problem = "record"        // run.json, definition.json or result.json cannot be read or is not the one recorded
	ProblemRunMissing   Problem = "run_missing"   // the audit chain knows a run that is not there and was not removed by hutch
	ProblemUnknownRun   Problem = "unknown_run"   // a run is there that the audit chain does not know
	ProblemUnknownFile  Problem = "unknown_file"  // a file is there that no event names

	ProblemSandboxMissing Problem = "sandbox_missing" // the audit chain knows a persistent sandbox that is not there and was not removed by hutch
	ProblemUnknownSandbox Problem = "unknown_sandbox" // a persistent sandbox is there that the audit chain does not know
)

// Finding is one thing that is wrong.
type Finding struct {
	Problem Problem `json:"problem"`
	Run     string  `json:"run,omitempty"`     // empty for the audit chain
	Sandbox string  `json:"sandbox,omitempty"` // id of the persistent sandbox whose chain it is
	Event   uint64  `json:"event,omitempty"`   // number of the event, or the nearest that is known
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

// wrong adds a finding that is not harmless.
func (r *Report) wrong(p Problem, event uint64, path, format string, args ...any) {
	r.find(Finding{Problem: p, Event: event, Path: path, Detail: fmt.Sprintf(format, args...)})
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

// VerifySandbox checks the chain of one persistent sandbox, every file its events point at, and its entries in the
// audit chain. It changes nothing. The commands that ran in the sandbox are runs, with chains of their own.
func (s *Store) VerifySandbox(ctx context.Context, id string) (*Report, error) {
	v := verifier{store: s}
	if _, err := v.readAudit(); err != nil {
		return nil, err
	}
	return v.sandbox(ctx, id)
}

// VerifyTree is Verify of a run and, where that is a loop, of the runs it is made of, but for those that hutch
// removed. It calls each with the reports as they come, the loop's first, and stops with the error that each returns.
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
		if v.runs[part].removed || !isRunID(part) {
			continue
		}
		rep := &Report{Run: part, OK: true, Findings: []Finding{}}
		if _, err := os.Lstat(s.paths.Run(part)); errors.Is(err, fs.ErrNotExist) {
			rep.wrong(ProblemRunMissing, 0, s.paths.Run(part),
				"it is a part of %s, is gone, and was not removed by hutch", id)
		} else if rep, err = v.run(ctx, part); err != nil {
			return err
		}
		if err := each(rep); err != nil {
			return err
		}
	}
	return nil
}

// VerifyAll checks the audit chain, every run, newest first, and every persistent sandbox, and calls each with the
// reports as they come; the audit chain's is the first. It stops with the error that each returns. A head that the
// audit chain had once, kept where the store's writer cannot reach, shows a chain that was cut or recreated since: ""
// for none.
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
	// What is missing may have been removed after the audit chain was read. Removing is entered there before anything
	// goes, so the chain is read once more, and only what was missing before is looked up in it, for others come and go
	// meanwhile.
	runs, sandboxes := missing(v.runs, s.paths.Run), missing(v.boxes, s.paths.Sandbox)
	if len(runs) > 0 || len(sandboxes) > 0 {
		if audit, err = v.readAudit(); err != nil {
			return err
		}
	}
	lost := func(p Problem, what, id, path string, removed bool) {
		if !removed {
			audit.wrong(p, 0, path, "%s %s was recorded, is gone, and was not removed by hutch", what, id)
		}
	}
	for _, id := range sandboxes {
		lost(ProblemSandboxMissing, "sandbox", id, s.paths.Sandbox(id), v.boxes[id].removed)
	}
	for _, id := range runs {
		lost(ProblemRunMissing, "run", id, s.paths.Run(id), v.runs[id].removed)
	}
	if head != "" && !v.hashes[head] {
		audit.wrong(ProblemHeadMismatch, 0, s.paths.Audit(),
			"it does not hold the head %s that was kept: it was cut or replaced", short(head))
	}
	if err := each(audit); err != nil {
		return err
	}
	report := func(rep *Report, err error) error {
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoSandbox) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		return each(rep)
	}
	for _, id := range ids {
		if err := report(v.run(ctx, id)); err != nil {
			return err
		}
	}
	for _, b := range boxes {
		if err := report(v.sandbox(ctx, b.ID)); err != nil {
			return err
		}
	}
	return nil
}

// missing lists, sorted, what the audit chain knows, has no removal of, and is not on disk.
func missing(known map[string]auditKnown, dir func(id string) string) (ids []string) {
	for id, k := range known {
		if k.removed || k.begin == nil && k.end == nil {
			continue
		}
		if _, err := os.Lstat(dir(id)); err != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// verifier checks records against the audit chain.
type verifier struct {
	store       *Store
	read        time.Time // when the audit chain was read
	runs, boxes map[string]auditKnown
	hashes      map[string]bool // of all events of the audit chain
}

// auditKnown is what the audit chain knows about one run or one persistent sandbox.
type auditKnown struct {
	begin   *auditBegin
	end     *auditEnd // of a run
	head    auditHead // of a sandbox, the furthest
	removed bool
}

// readAudit checks the audit chain and keeps what it says about each run and sandbox.
func (v *verifier) readAudit() (*Report, error) {
	v.read = time.Now()
	v.runs, v.boxes, v.hashes = map[string]auditKnown{}, map[string]auditKnown{}, map[string]bool{}
	rep := &Report{OK: true, Findings: []Finding{}}
	path := v.store.paths.Audit()
	check := chainChecker{find: rep.find, ok: func(e Event) { v.note(e); noteRepair(rep, e) }}
	end, err := readChain(path, func(l chainLine) error { check.line(l); return nil })
	if errors.Is(err, fs.ErrNotExist) {
		return rep, nil // nothing has run yet; runs that are there all the same will show as unknown
	}
	if err != nil {
		return nil, err
	}
	rep.Events, rep.Head = end.lines, check.head
	if end.torn > 0 {
		rep.find(tornTail(path, check.seq, end.torn, true))
	}
	return rep, nil
}

// note keeps what one entry of the audit chain says. Data that cannot be read says nothing.
func (v *verifier) note(e Event) {
	v.hashes[e.Hash] = true
	run, box := v.runs[e.Run], v.boxes[e.Run]
	switch e.Type {
	case EventBegin:
		run.begin = eventData[auditBegin](e)
	case EventEnd:
		if run.end = eventData[auditEnd](e); run.end != nil && run.end.Sandbox != nil {
			in := run.end.Sandbox
			b := v.boxes[in.ID]
			b.head = b.head.further(in.auditHead)
			v.boxes[in.ID] = b
			box = v.boxes[e.Run]
		}
	case EventRemoved:
		run.removed = true
	case EventSandboxBegin:
		box.begin = eventData[auditBegin](e)
	case EventSandboxHead:
		if h := eventData[auditHead](e); h != nil {
			box.head = box.head.further(*h)
		}
	case EventSandboxRemoved:
		box.removed = true
	default:
		return
	}
	v.runs[e.Run], v.boxes[e.Run] = run, box
}

// eventData is the data of an event; nil when it is something else.
func eventData[T any](e Event) *T {
	var data T
	if json.Unmarshal(e.Data, &data) != nil {
		return nil
	}
	return &data
}

func noteRepair(rep *Report, e Event) {
	if e.Type == EventRepaired {
		rep.find(Finding{Problem: ProblemRepaired, Harmless: true, Event: e.Seq,
			Detail: "an incomplete event before this one was set aside: " + string(e.Data)})
	}
}

func tornTail(path string, seq uint64, bytes int64, harmless bool) Finding {
	return Finding{Problem: ProblemTornTail, Harmless: harmless, Event: seq + 1, Path: path,
		Detail: fmt.Sprintf("%d bytes of an incomplete event at the end: "+
			"its writer died; the next one sets them aside", bytes)}
}

// run checks one run.
func (v *verifier) run(ctx context.Context, id string) (*Report, error) {
	return v.settle(v.store.paths.Run(id), v.runs, id, fmt.Errorf("%w: %s was removed meanwhile", ErrNotFound, id),
		func() (*Report, error) { return v.verifyRun(ctx, id) })
}

// sandbox checks one persistent sandbox.
func (v *verifier) sandbox(ctx context.Context, id string) (*Report, error) {
	return v.settle(v.store.paths.Sandbox(id), v.boxes, id, fmt.Errorf("%w: %.80q", ErrNoSandbox, id),
		func() (*Report, error) { return v.verifySandbox(ctx, id) })
}

// settle verifies a record. The files of one that is written to do not change all at once, nor with the audit chain;
// what looks wrong is therefore looked at again as long as somebody writes, and once in any case while the audit chain
// knows no end of it: the clock of the file system, which shows who writes, may be far behind on a busy machine. The
// error gone is for a record that is not there, or not any more.
func (v *verifier) settle(dir string, known map[string]auditKnown, id string, gone error,
	verify func() (*Report, error)) (rep *Report, err error) {
	for try := range 10 {
		rep, err = verify()
		if err == nil && rep.OK {
			return rep, nil
		}
		// Removing takes the directory away at once: what was missing of it a moment ago is no damage.
		if _, lerr := os.Lstat(dir); errors.Is(lerr, fs.ErrNotExist) {
			return nil, gone
		}
		if err != nil || (try > 0 || known[id].end != nil) && !v.writtenSince(dir) {
			return rep, err
		}
		if _, err := v.readAudit(); err != nil {
			return nil, err
		}
	}
	return rep, nil
}

// writtenSince reports whether a record was written to since the audit chain was read, or within the coarseness of the
// file system's clock before that.
func (v *verifier) writtenSince(dir string) bool {
	for _, name := range []string{eventsFile, infoFile, "."} {
		fi, err := os.Lstat(filepath.Join(dir, name))
		if err == nil && fi.ModTime().After(v.read.Add(-50*time.Millisecond)) {
			return true
		}
	}
	return false
}

// recordVerifier checks one record: its event chain, the files that the chain names, and what the audit chain knows.
type recordVerifier struct {
	chainState
	rep   *Report
	known auditKnown
	root  *os.Root
}

func (v *recordVerifier) close() {
	if v.root != nil {
		_ = v.root.Close()
	}
}

// open reads the event chain in dir and hashes the files that it names.
func (v *recordVerifier) open(ctx context.Context, dir, id string) error {
	if err := v.read(ctx, dir, id, v.known.head.Events, v.rep); err != nil {
		return err
	}
	if v.torn > 0 {
		v.rep.find(tornTail(eventsFile, v.seq, v.torn, v.rep.State != StateFinished))
	}
	var err error
	if v.root, err = os.OpenRoot(dir); err != nil {
		return diskError("read", dir, err)
	}
	return v.files(ctx, v.root, v.rep)
}

// begin compares the beginning of the chain with the audit chain. A host may be between making the directory and
// entering it there, or have died there: beginning says that the record looks so.
func (v *recordVerifier) begin(unknown Problem, what string, beginning bool) {
	switch {
	case v.known.begin == nil && !beginning:
		v.rep.wrong(unknown, 0, "", "the audit chain does not know this %s", what)
	case v.known.begin != nil && v.first.Seq == 1 && v.known.begin.Head != v.first.Hash:
		v.rep.wrong(ProblemHeadMismatch, 1, "",
			"the first event is not the one that the audit chain knows: the chain was replaced")
	}
}

func (v *verifier) verifySandbox(ctx context.Context, id string) (*Report, error) {
	dir := v.store.paths.Sandbox(id)
	info, err := v.store.readSandbox(id)
	if err != nil {
		return nil, err
	}
	rep := &Report{Sandbox: id, OK: true, State: State(info.State), Findings: []Finding{}}
	if info.State == SandboxDamaged {
		rep.wrong(ProblemRecord, 0, sandboxFile, "%s", info.Damage)
	}
	r := recordVerifier{rep: rep, known: v.boxes[id]}
	defer r.close()
	if err := r.open(ctx, dir, id); err != nil {
		return nil, err
	}
	r.begin(ProblemUnknownSandbox, "sandbox", info.State == SandboxCreating)
	if h := r.known.head; h.Events > 0 && r.hash != h.Head {
		rep.wrong(ProblemHeadMismatch, h.Events, "",
			"event %d is not the one that the audit chain knows: the chain was cut or replaced", h.Events)
	}
	if r.broken {
		return rep, nil // what more there should be is not known
	}
	input, err := readInputRefs(r.root)
	if err != nil {
		rep.wrong(ProblemRecord, 0, sandboxPrivateFile, "%s", err.Error())
	}
	for _, f := range input {
		if err := (refAt{FileRef: f}).verify(ctx, r.root, rep); err != nil {
			return nil, err
		}
	}
	return rep, unlistedFiles(ctx, r.root, rep, func(name string) bool {
		switch name {
		case eventsFile:
			return true
		case sandboxLockFile, filesLockFile:
			fi, err := r.root.Lstat(name)
			return err == nil && fi.Mode().IsRegular() && fi.Size() == 0
		}
		if r.refs[name].Path != "" || slices.ContainsFunc(input, func(f FileRef) bool { return f.Path == name }) {
			return true
		}
		// What is being made, or was killed then, has files that no event names yet.
		return info.State == SandboxCreating && (below(name, codeDir) || below(name, sandboxInputDir) || below(name, sandboxTrustDir) || name == baseFile)
	})
}

// runVerifier is a recordVerifier with what only runs have.
type runVerifier struct {
	recordVerifier
	info Info
}

func (v *verifier) verifyRun(ctx context.Context, id string) (*Report, error) {
	dir := v.store.paths.Run(id)
	info := v.store.readInfo(id)
	rep := &Report{Run: id, OK: true, State: info.State, Findings: []Finding{}}
	if info.State == StateDamaged {
		rep.wrong(ProblemRecord, 0, infoFile, "%s", info.Damage)
	}
	r := runVerifier{recordVerifier{rep: rep, known: v.runs[id]}, info}
	defer r.close()
	if err := r.open(ctx, dir, id); err != nil {
		return nil, err
	}
	r.compareParts(v.runs)
	if err := r.anchors(dir); err != nil {
		return nil, err
	}
	if r.broken {
		return rep, nil // what more there should be is not known
	}
	return rep, unlistedFiles(ctx, r.root, rep, r.knows)
}

// knows reports whether a run has a file of this name; some need no event that points at them.
func (v *runVerifier) knows(name string) bool {
	if slices.Contains([]string{eventsFile, resultFile}, name) || v.refs[name].Path != "" {
		return true
	}
	if v.last.Type == EventEnd || v.info.State == StateFinished {
		return false
	}
	// What goes on, or was killed, has files that no event names yet.
	return below(name, codeDir) || below(name, outputDir) || below(name, callsDir) || isLogFile(name)
}

// anchors compares the chain with what others say about it: run.json, result.json and the audit chain.
func (v *runVerifier) anchors(dir string) error {
	rep, known := v.rep, v.known
	result, err := os.ReadFile(filepath.Join(dir, resultFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("read", filepath.Join(dir, resultFile), err)
	}
	hasResult := err == nil

	switch v.info.State {
	case StateFinished:
		if !hasResult {
			rep.wrong(ProblemRecord, 0, resultFile, "the run is finished and its result is gone")
		}
		if known.end == nil {
			rep.wrong(ProblemHeadMismatch, 0, "", "the run is finished and the audit chain does not know its end")
		}
		if v.last.Type != EventEnd {
			rep.wrong(ProblemHeadMismatch, v.last.Seq, "",
				"the run is finished and the last event of its chain is not its end: events are missing")
		}
	case StateInterrupted:
		before := "the run had a result"
		if hasResult {
			before = "it wrote down that the run was finished"
		}
		rep.find(Finding{Problem: ProblemUnfinished, Harmless: true, Event: v.last.Seq,
			Detail: fmt.Sprintf("the host process (pid %d) ended before %s: it was killed, or there was no room on the disk "+
				"for the record; the last event is %s", v.info.Host.PID, before, orNone(string(v.last.Type)))})
	}
	if hasResult {
		v.compareResult(result)
	}
	if known.end != nil && (known.end.Events != rep.Events || known.end.Head != rep.Head) {
		rep.wrong(ProblemHeadMismatch, rep.Events, "",
			"the audit chain knows %d events up to %s, the chain has %d up to %s",
			known.end.Events, short(known.end.Head), rep.Events, short(rep.Head))
	}
	v.begin(ProblemUnknownRun, "run", v.first.Seq == 1 && v.last.Seq == 1 && v.info.State != StateFinished)
	return nil
}

// compareResult compares result.json with the audit chain and with the chain that it names.
func (v *runVerifier) compareResult(result []byte) {
	rep := v.rep
	rep.Files++
	rep.Bytes += int64(len(result))
	if end := v.known.end; end != nil && (int64(len(result)) != end.ResultSize || sumHex(result) != end.ResultSHA256) {
		rep.wrong(ProblemRecord, 0, resultFile, "it is not the result that the audit chain knows")
	}
	ref, ok := findChainRef(result)
	switch {
	case !json.Valid(result):
		rep.wrong(ProblemRecord, 0, resultFile, "it is not JSON")
	case !ok:
		rep.wrong(ProblemRecord, 0, resultFile, "it does not name the head of the event chain")
	case ref.Events != rep.Events || ref.Head != rep.Head:
		rep.wrong(ProblemHeadMismatch, rep.Events, resultFile,
			"the result names %d events up to %s, the chain has %d up to %s",
			ref.Events, short(ref.Head), rep.Events, short(rep.Head))
	}
}

// findChainRef finds the ChainRef among the top-level members of a result, whatever its member is called.
func findChainRef(result []byte) (ChainRef, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil {
		return ChainRef{}, false
	}
	for _, m := range members {
		var ref ChainRef
		if len(m) > 0 && m[0] == '{' && json.Unmarshal(m, &ref) == nil && ref.Path == eventsFile && len(ref.Head) == hashHex {
			return ref, true
		}
	}
	return ChainRef{}, false
}

func short(hash string) string { return orNone(hash[:min(len(hash), 12)]) }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// partOfLoop is a run that an event of a loop names as a part of it, with the head of its chain.
type partOfLoop struct {
	event uint64
	Run   string `json:"run"`
	Head  string `json:"head"`
}

// compareParts compares what a loop says about its runs with what the audit chain knows of them, also of those that
// hutch removed since. Whether a run is what the audit chain knows is in its own report.
func (v *runVerifier) compareParts(known map[string]auditKnown) {
	for _, p := range v.parts {
		v.rep.parts = append(v.rep.parts, p.Run)
		k := known[p.Run]
		wrong := func(format string, args ...any) {
			v.rep.wrong(ProblemHeadMismatch, p.event, "", "run "+p.Run+": "+format, args...)
		}
		switch {
		case k.begin == nil:
			wrong("the audit chain does not know it")
		case p.Head == "": // it was interrupted
		case k.end == nil:
			wrong("the loop knows its end, and the audit chain does not")
		case k.end.Head != p.Head:
			wrong("the loop knows its chain up to %s, and the audit chain up to %s: one of them was replaced",
				short(p.Head), short(k.end.Head))
		}
	}
}

// chainState is what an event chain says about its record.
type chainState struct {
	first, last Event
	refs        map[string]refAt
	hash        string // of the event that was asked for; empty when it is not there
	seq         uint64 // of the last line
	torn        int64  // bytes after it
	broken      bool   // some of it cannot be read
	parts       []partOfLoop
}

// refAt is what an event says about a file. A file that was written again counts as it was last.
type refAt struct {
	FileRef
	event  uint64
	before *FileRef // what was said before that; nil for nothing
}

// read checks the event chain in dir, and keeps the hash of event number at.
func (c *chainState) read(ctx context.Context, dir, id string, at uint64, rep *Report) error {
	c.refs = map[string]refAt{}
	check := chainChecker{run: id, find: func(f Finding) { c.broken = true; rep.find(f) }, ok: func(e Event) {
		if c.first.Seq == 0 {
			c.first = e
		}
		c.last = e
		if e.Seq == at {
			c.hash = e.Hash
		}
		for _, f := range e.Files {
			ref := refAt{FileRef: f, event: e.Seq}
			if old, ok := c.refs[f.Path]; ok {
				ref.before = &old.FileRef
			}
			c.refs[f.Path] = ref
		}
		if e.Type == EventAttempt || e.Type == EventToolCall {
			if p := eventData[partOfLoop](e); p != nil && p.Run != "" {
				p.event = e.Seq
				c.parts = append(c.parts, *p)
			}
		}
		noteRepair(rep, e)
	}}
	end, err := readChain(filepath.Join(dir, eventsFile), func(l chainLine) error { check.line(l); return ctx.Err() })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, lerr := os.Lstat(dir); lerr != nil {
			return diskError("read", dir, lerr)
		}
		c.broken = true
		rep.wrong(ProblemFileMissing, 0, eventsFile, "the event chain is gone")
	case err != nil:
		return err
	}
	rep.Events, rep.Head = end.lines, check.head
	c.seq, c.torn = check.seq, end.torn
	return nil
}

// files hashes every file that events point at.
func (c *chainState) files(ctx context.Context, root *os.Root, rep *Report) error {
	paths := make([]string, 0, len(c.refs))
	for p := range c.refs {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		if err := c.refs[p].verify(ctx, root, rep); err != nil {
			return err
		}
	}
	return nil
}

// verify hashes one file. A file that hutch replaces is announced before it takes its place, so the one before it is
// what a writer that died left.
func (r refAt) verify(ctx context.Context, root *os.Root, rep *Report) error {
	got, err := hashBelow(ctx, root, r.Path)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rep.Files++
	rep.Bytes += got.Size
	found := Finding{Event: r.event, Path: r.Path}
	var refused *safefile.Error
	switch {
	case errors.As(err, &refused) && refused.Reason == safefile.ReasonMissing:
		found.Problem, found.Detail = ProblemFileMissing, "the file is gone"
		found.Harmless = r.before == nil && replaced(r.Path)
	case err != nil:
		found.Problem, found.Detail = ProblemFileChanged, err.Error()
	case got.Size == r.Size && got.SHA256 == r.SHA256:
		if r.Mode != "" && r.Mode != got.Mode {
			rep.wrong(ProblemFileChanged, r.event, r.Path, "its mode is %s, and %s was recorded", got.Mode, r.Mode)
		}
		return nil
	case r.before != nil && replaced(r.Path) && got.Size == r.before.Size && got.SHA256 == r.before.SHA256:
		found.Problem, found.Harmless = ProblemFileChanged, true
		found.Detail = "it is the version before the last: a writer died before it put that one in place"
	case got.Size != r.Size:
		found.Problem, found.Detail = ProblemFileChanged, fmt.Sprintf("%d bytes, and %d were recorded", got.Size, r.Size)
	default:
		found.Problem, found.Detail = ProblemFileChanged, "its content is not what was recorded"
	}
	if found.Detail == "the file is gone" && found.Harmless {
		found.Detail = "it is not there: a writer died before it put it in place"
	}
	rep.find(found)
	return nil
}

// hashBelow is refFile that can be ended.
func hashBelow(ctx context.Context, root *os.Root, name string) (FileRef, error) {
	f, info, err := safefile.OpenLinked(root, filepath.FromSlash(name), -1)
	if err != nil {
		return FileRef{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, tree.Reader(ctx, f))
	return FileRef{Path: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Mode: octal(info.Mode)}, err
}

// unlistedFiles finds the files that no event names. Directories do not count.
func unlistedFiles(ctx context.Context, root *os.Root, rep *Report, knows func(name string) bool) error {
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist):
			return nil // a temporary name, or all of it is being removed
		case err != nil:
			rep.wrong(ProblemUnknownFile, 0, name, "it cannot be looked at: %v", err)
			return nil
		case d.IsDir() || knows(name):
			return nil
		}
		found := Finding{Problem: ProblemUnknownFile, Path: name, Detail: "no event names it"}
		base := path.Base(name)
		switch {
		case isTemp(base) && rep.State != StateFinished:
			if !tempOwnerDead(base, age(d)) {
				return nil
			}
			fallthrough
		case strings.HasPrefix(name, eventsFile+tornMark), name == baseFile+newMark:
			found.Harmless, found.Detail = true, "a writer that died left it"
		}
		rep.find(found)
		return nil
	})
}

func age(d fs.DirEntry) time.Duration {
	fi, err := d.Info()
	if err != nil {
		return 0
	}
	return time.Since(fi.ModTime())
}

// below reports whether name lies below dir.
func below(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }
