package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/safefile"
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
	ProblemHeadMismatch Problem = "head_mismatch" // the audit chain, or a loop, names another head
	// the host ended before the record was complete: it was killed, or the disk was full
	ProblemUnfinished Problem = "unfinished"
	ProblemRecord     Problem = "record" // the short record or the private part of a sandbox cannot be read
	// the audit chain knows a run that is not there and was not removed by hutch
	ProblemRunMissing  Problem = "run_missing"
	ProblemUnknownRun  Problem = "unknown_run"  // a run is there that the audit chain does not know
	ProblemUnknownFile Problem = "unknown_file" // a file is there that no event names

	// the audit chain knows a persistent sandbox that is not there and was not removed by hutch
	ProblemSandboxMissing Problem = "sandbox_missing"
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

// recordKind is what differs between the records of runs, loops among them, and of persistent sandboxes.
type recordKind struct {
	noun             string
	dir              func(Paths, string) string
	file             string    // its short record
	begin, removed   EventType // in the audit chain
	missing, unknown Problem
	gone             error // that it is missing
	// read reads the short record. The error is that there is no record.
	read func(s *Store, id string) (shortRecord, error)
	// check does what only this kind needs.
	check func(v *recordVerifier) error
}

var (
	runRecords = &recordKind{"run", Paths.Run, eventsFile, EventBegin, EventRemoved,
		ProblemRunMissing, ProblemUnknownRun, ErrNotFound, shortRun, checkRun}
	sandboxRecords = &recordKind{"sandbox", Paths.Sandbox, sandboxFile, EventSandboxBegin, EventSandboxRemoved,
		ProblemSandboxMissing, ProblemUnknownSandbox, ErrNoSandbox, shortSandbox, checkSandbox}
)

// shortRecord is what verification needs of a record's JSON file.
type shortRecord struct {
	state  State
	damage string
	host   Process
	open   bool // it is being written, or its writer died: it may have files that no event names yet
	sealed bool // the audit chain knew its end
}

func shortRun(s *Store, id string) (shortRecord, error) {
	i := s.readInfo(id)
	fi, err := os.Lstat(filepath.Join(s.paths.Run(id), eventsFile))
	sealed := err == nil && fi.Mode().Perm()&0o200 == 0 // see chain.seal
	return shortRecord{i.State, i.Damage, i.Host, i.State != StateFinished, sealed}, nil
}

func shortSandbox(s *Store, id string) (shortRecord, error) {
	i, err := s.readSandbox(id)
	open := i.State == SandboxCreating || i.State == SandboxRemoving
	return shortRecord{State(i.State), i.Damage, i.Host, open, false}, err
}

// Verify checks the chain of one run, every file its events point at, its result, and its entries in the audit chain.
// It changes nothing. An error means that it could not look.
func (s *Store) Verify(ctx context.Context, id string) (*Report, error) {
	if _, err := s.Load(id); err != nil {
		return nil, err
	}
	return s.verify(ctx, runRecords, id)
}

// VerifySandbox checks the chain of one persistent sandbox, every file its events point at, and its entries in the
// audit chain. It changes nothing. The commands that ran in the sandbox are runs, with chains of their own.
func (s *Store) VerifySandbox(ctx context.Context, id string) (*Report, error) {
	return s.verify(ctx, sandboxRecords, id)
}

func (s *Store) verify(ctx context.Context, kind *recordKind, id string) (*Report, error) {
	v := verifier{store: s}
	if _, err := v.readAudit(); err != nil {
		return nil, err
	}
	return v.verify(ctx, kind, id)
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
	top, err := v.verify(ctx, runRecords, id)
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
		if v.known[s.paths.Run(part)].removed || !isRunID(part) {
			continue
		}
		rep, err := v.verify(ctx, runRecords, part)
		if errors.Is(err, ErrNotFound) {
			rep, err = &Report{Run: part, OK: true, Findings: []Finding{}}, nil
			rep.wrong(ProblemRunMissing, 0, s.paths.Run(part),
				"it is a part of %s, is gone, and was not removed by hutch", id)
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

// VerifyAll checks the audit chain, every run, newest first, and every persistent sandbox, and calls each with the
// reports as they come; the audit chain's is the first. It stops with the error that each returns. A head that the
// audit chain had once, kept where the store's writer cannot reach, shows a chain that was cut or recreated since: ""
// for none.
func (s *Store) VerifyAll(ctx context.Context, head string, each func(*Report) error) error {
	// What is there is listed before the audit chain is read, so that what begins meanwhile is not unknown.
	runs, err := s.runIDs()
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
	if missing := v.missing(); len(missing) > 0 {
		if audit, err = v.readAudit(); err != nil {
			return err
		}
		for _, dir := range missing {
			if k := v.known[dir]; !k.removed {
				audit.wrong(k.kind.missing, 0, dir, "%s %s was recorded, is gone, and was not removed by hutch",
					k.kind.noun, filepath.Base(dir))
			}
		}
	}
	if head != "" && !v.hashes[head] {
		audit.wrong(ProblemHeadMismatch, 0, s.paths.Audit(),
			"it does not hold the head %s that was kept: it was cut or replaced", short(head))
	}
	if err := each(audit); err != nil {
		return err
	}
	one := func(kind *recordKind, id string) error {
		rep, err := v.verify(ctx, kind, id)
		switch {
		case errors.Is(err, kind.gone):
			return nil // removed meanwhile
		case err != nil:
			return err
		}
		return each(rep)
	}
	for _, id := range runs {
		if err := one(runRecords, id); err != nil {
			return err
		}
	}
	for _, b := range boxes {
		if err := one(sandboxRecords, b.ID); err != nil {
			return err
		}
	}
	return nil
}

// verifier checks records against the audit chain.
type verifier struct {
	store  *Store
	read   time.Time             // when the audit chain was read
	known  map[string]auditKnown // by directory
	hashes map[string]bool       // of all events of the audit chain
}

// auditKnown is what the audit chain knows about one record.
type auditKnown struct {
	kind           *recordKind
	begun, removed bool
	head           auditHead // the furthest
	ended          bool      // head is the end of the chain
}

// readAudit checks the audit chain and keeps what it says about each record.
func (v *verifier) readAudit() (*Report, error) {
	v.read, v.known, v.hashes = time.Now(), map[string]auditKnown{}, map[string]bool{}
	rep := &Report{OK: true, Findings: []Finding{}}
	path := v.store.paths.Audit()
	check := chainChecker{find: rep.find, ok: func(e Event) { v.note(e); noteRepair(rep, e) }}
	end, err := readChain(path, func(n uint64, d decoded) error { check.line(n, d); return nil })
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
	kind := runRecords
	switch e.Type {
	case EventBegin, EventEnd, EventRemoved:
	case EventSandboxBegin, EventSandboxHead, EventSandboxRemoved:
		kind = sandboxRecords
	default:
		return
	}
	dir := kind.dir(v.store.paths, e.Run)
	k := v.known[dir]
	k.kind = kind
	switch h := eventData[auditHead](e); {
	case e.Type == kind.removed:
		k.removed = true
	case h == nil:
	default:
		k.begun = k.begun || e.Type == kind.begin
		if h.Events > k.head.Events {
			k.head = *h
		}
		k.ended = k.ended || e.Type == EventEnd
	}
	v.known[dir] = k
}

// missing lists, sorted, the directories that the audit chain knows, has no removal of, and that are not there.
func (v *verifier) missing() (dirs []string) {
	for dir, k := range v.known {
		if k.removed || !k.begun && !k.ended {
			continue
		}
		if _, err := os.Lstat(dir); err != nil {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
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

// verify checks one record. The files of one that is written to do not change all at once, nor with the audit chain;
// what looks wrong is therefore looked at again as long as somebody writes, and once in any case while the audit chain
// knows no end of it: the clock of the file system, which shows who writes, may be far behind on a busy machine. The
// error is kind.gone when it is not there, or not any more.
func (v *verifier) verify(ctx context.Context, kind *recordKind, id string) (rep *Report, err error) {
	dir := kind.dir(v.store.paths, id)
	for try := range 10 {
		rep, err = v.verifyOnce(ctx, kind, id)
		if err == nil && rep.OK {
			return rep, nil
		}
		// Removing takes the directory away at once: what was missing of it a moment ago is no damage.
		if _, lerr := os.Lstat(dir); errors.Is(lerr, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %.80q", kind.gone, id)
		}
		if err != nil || (try > 0 || v.known[dir].ended) && !v.writtenSince(dir) {
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
	for _, name := range []string{eventsFile, sandboxFile, "."} {
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
	shortRecord
	rep   *Report
	known auditKnown
	root  *os.Root
}

func (v *verifier) verifyOnce(ctx context.Context, kind *recordKind, id string) (*Report, error) {
	dir := kind.dir(v.store.paths, id)
	s, err := kind.read(v.store, id)
	if err != nil {
		return nil, err
	}
	rep := &Report{OK: true, State: s.state, Findings: []Finding{}}
	if kind == runRecords {
		rep.Run = id
	} else {
		rep.Sandbox = id
	}
	if s.damage != "" {
		rep.wrong(ProblemRecord, 0, kind.file, "%s", s.damage)
	}
	r := recordVerifier{shortRecord: s, rep: rep, known: v.known[dir]}
	if err := r.read(ctx, dir, id, r.known.head.Events, rep); err != nil {
		return nil, err
	}
	if r.torn > 0 {
		rep.find(tornTail(eventsFile, r.seq, r.torn, rep.State != StateFinished))
	}
	if r.root, err = os.OpenRoot(dir); err != nil {
		return nil, diskError("read", dir, err)
	}
	defer r.root.Close()
	if err := kind.check(&r); err != nil {
		return nil, err
	}
	if err := r.files(ctx, r.root, rep); err != nil {
		return nil, err
	}
	r.compareHead(kind)
	r.compareParts(v)
	if r.broken {
		return rep, nil // what more there should be is not known
	}
	return rep, r.unlistedFiles(ctx)
}

// compareHead compares the chain with how far the audit chain knows it.
func (v *recordVerifier) compareHead(kind *recordKind) {
	h := v.known.head
	if h.Events > 0 && v.hash != h.Head || v.known.ended && v.rep.Events != h.Events {
		v.rep.wrong(ProblemHeadMismatch, h.Events, "",
			"the audit chain knows %d events up to %s, the chain has %d up to %s: it was cut or replaced",
			h.Events, short(h.Head), v.rep.Events, short(v.rep.Head))
	}
	// A host may be between making the directory and entering it in the audit chain, or have died there.
	if beginning := v.open && v.first.Seq == 1 && v.last.Seq == 1; !v.known.begun && !beginning {
		v.rep.wrong(kind.unknown, 0, "", "the audit chain does not know this %s", kind.noun)
	}
}

// checkRun says what is missing at the end of a run, and whether it is missing because its writer died.
func checkRun(v *recordVerifier) error {
	died := func(before string) {
		v.rep.find(Finding{Problem: ProblemUnfinished, Harmless: true, Event: v.last.Seq,
			Detail: fmt.Sprintf("the host process (pid %d) ended before %s: it was killed, or there was no room on the disk "+
				"for the record; the last event is %s", v.host.PID, before, orNone(string(v.last.Type)))})
	}
	switch {
	case v.state == StateInterrupted:
		died("the run had a result")
	case v.state == StateFinished && !v.known.ended && v.sealed:
		v.rep.wrong(ProblemHeadMismatch, 0, "", "the run is finished and the audit chain does not know its end")
	case v.state == StateFinished && !v.sealed && !v.host.Alive():
		died("it entered the end of the run in the audit chain")
	}
	return nil
}

// checkSandbox adds the files that the private part of a sandbox's record names and no event does.
func checkSandbox(v *recordVerifier) error {
	input, err := readInputRefs(v.root)
	if err != nil && !v.broken {
		v.rep.wrong(ProblemRecord, 0, sandboxPrivateFile, "%s", err.Error())
	}
	for _, f := range input {
		v.refs[f.Path] = refAt{FileRef: f}
	}
	return nil
}

// knows reports whether a record has a file of this name; some need no event that points at them.
func (v *recordVerifier) knows(name string) bool {
	switch {
	case name == eventsFile || v.refs[name].Path != "":
		return true
	case v.rep.Sandbox != "" && (name == sandboxLockFile || name == filesLockFile):
		fi, err := v.root.Lstat(name)
		return err == nil && fi.Mode().IsRegular() && fi.Size() == 0
	case !v.open || v.last.Type == EventEnd:
		return false
	}
	dir, _, below := strings.Cut(name, "/")
	return below && slices.Contains([]string{codeDir, outputDir, callsDir, sandboxInputDir, sandboxTrustDir}, dir) ||
		name == baseFile || isLogFile(name)
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
func (v *recordVerifier) compareParts(all *verifier) {
	for _, p := range v.parts {
		v.rep.parts = append(v.rep.parts, p.Run)
		k := all.known[all.store.paths.Run(p.Run)]
		wrong := func(format string, args ...any) {
			v.rep.wrong(ProblemHeadMismatch, p.event, "", "run "+p.Run+": "+format, args...)
		}
		switch {
		case !k.begun:
			wrong("the audit chain does not know it")
		case p.Head == "": // it was interrupted
		case !k.ended:
			wrong("the loop knows its end, and the audit chain does not")
		case k.head.Head != p.Head:
			wrong("the loop knows its chain up to %s, and the audit chain up to %s: one of them was replaced",
				short(p.Head), short(k.head.Head))
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
	end, err := readChain(filepath.Join(dir, eventsFile), func(n uint64, d decoded) error {
		if check.line(n, d); check.seq == at {
			c.hash = check.head
		}
		return ctx.Err()
	})
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
	got, err := refFile(ctx, root, r.Path)
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

// unlistedFiles finds the files that no event names. Directories do not count.
func (v *recordVerifier) unlistedFiles(ctx context.Context) error {
	rep := v.rep
	return fs.WalkDir(v.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist):
			return nil // a temporary name, or all of it is being removed
		case err != nil:
			rep.wrong(ProblemUnknownFile, 0, name, "it cannot be looked at: %v", err)
			return nil
		case d.IsDir() || v.knows(name):
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
