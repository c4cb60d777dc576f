package store

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// SandboxSchema is the schema of sandbox.json.
const SandboxSchema = "hutch.sandbox/v1"

// SandboxState is where the record of a persistent sandbox is in its life. How the sandbox itself is, only its backend
// can tell.
type SandboxState string

// The states of a sandbox's record.
const (
	SandboxCreating SandboxState = "creating" // its host process is making it, or died while it did
	SandboxReady    SandboxState = "ready"    // it is there, until somebody removes it
	// SandboxRemoving says that it is to be removed: somebody began to, or the process that it belongs to is gone. Its
	// name is free. The next command finishes it: [Store.FinishSandboxes].
	SandboxRemoving SandboxState = "removing"
	SandboxDamaged  SandboxState = "damaged" // its record cannot be read
)

// Errors about persistent sandboxes that callers distinguish with errors.Is.
var (
	// ErrNoSandbox says that there is no such sandbox.
	ErrNoSandbox = errors.New("no such sandbox")
	// ErrInUse says that another process works in the sandbox, or that one has it for itself.
	ErrInUse = errors.New("it is in use")
	// ErrNameTaken says that a sandbox has the name already.
	ErrNameTaken = errors.New("the name is taken")
	// ErrHalf says that the sandbox was never finished or is half removed, and that nobody is about to change that.
	ErrHalf = errors.New("it is no whole sandbox (`hutch gc` removes what is left of it)")
)

// SandboxInfo is the record of a sandbox that outlives its command: sandbox.json in its directory.
type SandboxInfo struct {
	Schema string       `json:"schema"`
	ID     string       `json:"id"`   // sorts by time, like the id of a run
	Name   string       `json:"name"` // unique among the sandboxes that are not being removed
	State  SandboxState `json:"state"`

	Backend        string `json:"backend"`
	BackendVersion string `json:"backend_version,omitempty"`
	Binary         string `json:"binary"`                  // path of the plugin that made it
	BinarySHA256   string `json:"binary_sha256,omitempty"` // hex
	Owner          string `json:"owner,omitempty"`         // what the backend marked its parts with
	Home           string `json:"home,omitempty"`          // Paths.Data of its store; see [Store.Original]

	File    string `json:"file,omitempty"`    // run file that it was made from
	Run     string `json:"run,omitempty"`     // label of the run block in it
	MadeBy  string `json:"made_by,omitempty"` // id of the run that left it, see hutch run --keep
	Parent  string `json:"parent,omitempty"`  // id of the sandbox that it is a fork of
	Project string `json:"project,omitempty"` // shared project directory that is its workspace

	Workspace SandboxWorkspace `json:"workspace"`
	Network   network.Network  `json:"network"`
	Limits    json.RawMessage  `json:"limits,omitempty"`  // as asked for and held: a list of result limits
	Mounts    []string         `json:"mounts,omitempty"`  // host directories besides the workspace that it needs
	Workdir   string           `json:"workdir,omitempty"` // where commands start
	EnvNames  []string         `json:"env,omitempty"`     // names of the variables that its commands get

	Push *SandboxPush `json:"push,omitempty"` // nil unless hutch push made it

	Attempt *SandboxAttempt `json:"attempt,omitempty"` // nil unless it is one of several attempts at a task, which has ended

	Created time.Time  `json:"created"`
	Started *time.Time `json:"started,omitempty"` // when it was last made again; nil for never
	Host    Process    `json:"host"`              // that made it
	// EndsWith is the process that the sandbox must not outlive, such as an MCP server; nil for a sandbox that stays.
	EndsWith *Process        `json:"ends_with,omitempty"`
	Handle   json.RawMessage `json:"handle,omitempty"` // what the backend needs to find it again

	// Damage says why the record cannot be read, for [SandboxDamaged].
	Damage string `json:"damage,omitempty"`
}

// Intent says what the record knows of what was made, in the words of an intent.
func (i SandboxInfo) Intent() Intent {
	return Intent{ID: i.ID, Backend: i.Backend, Binary: i.Binary, BinarySHA256: i.BinarySHA256, Owner: i.Owner,
		Home: i.Home, Handle: i.Handle}
}

// SandboxAttempt names the runs of one attempt at a task.
type SandboxAttempt struct {
	Run   string `json:"run"`             // id of the command that worked on it
	Check string `json:"check,omitempty"` // id of the command that judged it; "" for none
}

// SandboxPush is what hutch push sent into a sandbox, and where it is there.
type SandboxPush struct {
	Repository string `json:"repository"` // work tree on this host, absolute
	Branch     string `json:"branch"`     // that was checked out
	Head       string `json:"head"`       // its commit then
	Base       string `json:"base"`       // commit that was sent: Head, or one on it with what was not committed
	Plan       string `json:"plan"`       // relative to the repository
	Sent       int64  `json:"sent"`       // bytes of the bundle that was sent last; 0 where nothing was missing

	// As commands see it:
	Clone    string `json:"clone"`             // directory of the clone
	Exchange string `json:"exchange"`          // directory of the bundles
	PlanPath string `json:"plan_path"`         // file with the plan
	Workdir  string `json:"workdir,omitempty"` // where the command starts; empty for the clone

	Timeout time.Duration `json:"timeout_ns"`    // of the command
	Run     string        `json:"run,omitempty"` // of the command that works on it, the last one
}

// SandboxLayers are the directories of this host that a workspace is made of; the fields are those of sdk.Layers.
type SandboxLayers struct {
	Lower   string   `json:"lower,omitempty"`
	Upper   string   `json:"upper,omitempty"`
	Trusted bool     `json:"trusted,omitempty"`
	Frozen  []string `json:"frozen,omitempty"`
}

// SandboxWorkspace is what a sandbox has as its workspace.
type SandboxWorkspace struct {
	Source string `json:"source,omitempty"` // host directory, absolute; empty for a directory of the sandbox's own
	Mode   string `json:"mode"`             // private, shared or readonly
	// Omit are paths in it whose changes are for no review.
	Omit   []string `json:"omit,omitempty"`
	Path   string   `json:"path,omitempty"`   // as commands see it
	Input  string   `json:"input,omitempty"`  // where commands see the input, if there is one
	Output string   `json:"output,omitempty"` // where commands see the output directory
	// Layers are the directories of this host that it can be read in, as its backend reported; nil when there are none.
	Layers *SandboxLayers `json:"layers,omitempty"`
}

// Omits reports whether path, in the workspace, is one whose changes are for no review.
func (w SandboxWorkspace) Omits(path string) bool {
	return slices.ContainsFunc(w.Omit, func(o string) bool { return path == o || strings.HasPrefix(path, o+"/") })
}

// The files of a persistent sandbox's directory, besides events.jsonl and code/.
const (
	sandboxFile        = "sandbox.json"
	sandboxPrivateFile = "private.json"
	sandboxLockFile    = "lock"
	sandboxInputDir    = "input"
	sandboxTrustDir    = "trust"
	baseFile           = "base"
	filesLockFile      = "files.lock" // of host/workspace
	newMark            = ".new"       // follows the name of a base that is being written
)

// replaced reports whether a file of the record is one that is rewritten, each time with an event before.
func replaced(name string) bool {
	return name == sandboxFile || name == sandboxPrivateFile || name == baseFile
}

// SandboxRecord is a persistent sandbox that this process holds a lock on. Its methods may be called concurrently, but
// for Close and Forget.
type SandboxRecord struct {
	record
	lock *os.File
	info SandboxInfo
}

// BeginSandbox puts the record of a sandbox that is about to be made on disk, in state [SandboxCreating], and locks it
// alone until it is closed. It fills in what the store knows: a missing ID, the name, the times. Without
// a name one is derived from want, such as want, want-2, want-3. A name that is not free is [ErrNameTaken].
func (s *Store) BeginSandbox(n SandboxInfo, want string) (*SandboxRecord, error) {
	all, err := s.BeginSandboxes(n, want, []string{n.Name})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// BeginSandboxes is [Store.BeginSandbox] for several that differ in id and name; "" is a name that is derived.
func (s *Store) BeginSandboxes(n SandboxInfo, want string, called []string) (all []*SandboxRecord, err error) {
	names, err := s.lockNames()
	if err != nil {
		return nil, err
	}
	defer names.Close()
	list, err := s.Sandboxes()
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, i := range list {
		taken[i.Name] = taken[i.Name] || i.State != SandboxRemoving
	}
	for _, n.Name = range called {
		r, err := s.beginSandbox(n, want, taken)
		if err != nil {
			for _, r := range all {
				err = errors.Join(err, r.Forget())
			}
			return nil, err
		}
		all = append(all, r)
		n.ID = ""
	}
	return all, nil
}

func (s *Store) beginSandbox(n SandboxInfo, want string, taken map[string]bool) (*SandboxRecord, error) {
	if n.ID == "" {
		n.ID = s.NewID()
	}
	if !isRunID(n.ID) {
		return nil, fmt.Errorf("sandbox id %.60q is not one that the store gave out", n.ID)
	}
	var err error
	if n.Name, err = freeName(n.Name, want, taken); err != nil {
		return nil, err
	}
	taken[n.Name] = true
	n.Schema, n.State, n.Created, n.Host = SandboxSchema, SandboxCreating, s.now().UTC(), Self()
	n.Owner, n.Home = s.Owner(), s.paths.Data
	r := &SandboxRecord{info: n}
	r.open(s, n.ID, s.paths.Sandbox(n.ID))
	if err := r.create(r.fill); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("record sandbox %s: %w", n.Name, err)
	}
	return r, nil
}

// fill writes the files of a new sandbox and returns its first event.
func (r *SandboxRecord) fill(dir string) (Event, error) {
	path := filepath.Join(dir, sandboxLockFile)
	var err error
	if r.lock, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return Event{}, diskError("write", path, err)
	}
	if err := flock.Try(r.lock, unix.LOCK_EX); err != nil {
		return Event{}, diskError("lock", dir, err)
	}
	info, err := MarshalIndent(r.info)
	if err != nil {
		return Event{}, err
	}
	if err := writeNew(filepath.Join(dir, sandboxFile), info); err != nil {
		return Event{}, err
	}
	data, err := marshalData(EventSandboxBegin,
		map[string]any{"name": r.info.Name, "backend": r.info.Backend, "host": r.info.Host})
	return Event{
		Run: r.id, Type: EventSandboxBegin, Time: r.info.Created, Parent: r.info.MadeBy, Data: data,
		Files: []FileRef{refBytes(sandboxFile, info)},
	}, err
}

// Info is the record as it is now.
func (r *SandboxRecord) Info() SandboxInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Base is where [Paths.SandboxBase] lies; the file need not exist.
func (r *SandboxRecord) Base() string { return r.store.paths.SandboxBase(r.id) }

// NewBase writes a base that will take the place of Base, see [SandboxRecord.PlaceBase].
func (r *SandboxRecord) NewBase(write func(io.Writer) error) error {
	path := r.Base() + newMark
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return diskError("write", path, err)
	}
	buf := bufio.NewWriterSize(f, 256<<10)
	if err = write(buf); err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// InputDir makes the directory for input that must last as long as the sandbox and is not in CodeDir.
func (r *SandboxRecord) InputDir() (string, error) { return r.privateDir(sandboxInputDir) }

// TrustDir makes the directory for the certificates that commands of the sandbox trust.
func (r *SandboxRecord) TrustDir() (string, error) { return r.privateDir(sandboxTrustDir) }

// privateDir makes a directory whose files [SandboxRecord.WritePrivate] vouches for.
func (r *SandboxRecord) privateDir(name string) (string, error) {
	dir := filepath.Join(r.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", diskError("make", dir, err)
	}
	// What keeps others out is the directory above; the sandbox's user may be somebody else.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", diskError("make", dir, err)
	}
	return dir, nil
}

// Event appends one event to the sandbox's chain, as [Run.Event] does to that of a run. Any number of processes append
// to one chain.
func (r *SandboxRecord) Event(typ EventType, data any, files ...FileRef) error {
	_, err := r.event(typ, data, files...)
	return err
}

// Changed appends one event about something that was changed by hand, and enters in the audit chain how far the
// sandbox's chain goes now, so that [Store.VerifySandbox] notices when the event is cut off its end.
func (r *SandboxRecord) Changed(typ EventType, data any) error {
	head, err := r.event(typ, data)
	if err != nil {
		return err
	}
	return r.store.enter(auditEntry{EventSandboxHead, r.id, head})
}

// Events is [Record.Events] of the sandbox's chain.
func (r *SandboxRecord) Events() ([]Event, error) { return readEvents(r.dir) }

func (r *SandboxRecord) event(typ EventType, data any, files ...FileRef) (auditHead, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.append(typ, data, files, nil)
}

// appended is how far the chain goes by what this process appended to it; zero if that was nothing.
func (r *SandboxRecord) appended() auditHead {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head
}

// replace writes a file of the record again, and says so in the chain just before the file is there.
func (r *SandboxRecord) replace(name string, data []byte) error {
	f := newAtomicFile(filepath.Join(r.dir, name))
	defer f.abandon()
	if err := f.write(data, true); err != nil {
		return err
	}
	head, err := r.append(EventSandboxRecord, nil, []FileRef{refBytes(name, data)}, f.place)
	if err != nil {
		return err
	}
	return r.store.enter(auditEntry{EventSandboxHead, r.id, head})
}

// PlaceBase puts a new base, written to NewBase, in its place.
func (r *SandboxRecord) PlaceBase() error { return r.store.PlaceSandboxBase(r.id) }

// LinkBase gives the sandbox the base of another one, unless that has none.
func (r *SandboxRecord) LinkBase(from string) error {
	events, err := readEvents(r.store.paths.Sandbox(from))
	if err != nil {
		return err
	}
	var ref FileRef
	for _, e := range events {
		for _, f := range e.Files {
			if f.Path == baseFile {
				ref = f
			}
		}
	}
	if ref.Path == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	head, err := r.append(EventSandboxRecord, nil, []FileRef{ref},
		func() error { return os.Link(r.store.paths.SandboxBase(from), r.Base()) })
	if err != nil {
		return diskError("link", r.Base(), err)
	}
	return r.store.enter(auditEntry{EventSandboxHead, r.id, head})
}

// SandboxBase is [Paths.SandboxBase].
func (s *Store) SandboxBase(id string) string { return s.paths.SandboxBase(id) }

// SandboxesOf are the ids of the sandboxes whose workspace was made from a project, or to which its branch was pushed.
func (s *Store) SandboxesOf(project string) ([]string, error) {
	all, err := s.Sandboxes()
	var ids []string
	for _, i := range all {
		if i.Workspace.Source == project || i.Push != nil && i.Push.Repository == project {
			ids = append(ids, i.ID)
		}
	}
	return ids, err
}

// PlaceSandboxBase is [SandboxRecord.PlaceBase] for callers that have the sandbox's id and not its record.
func (s *Store) PlaceSandboxBase(id string) error {
	dir := s.paths.Sandbox(id)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return diskError("open", dir, err)
	}
	defer root.Close()
	ref, err := refFile(context.Background(), root, baseFile+newMark)
	if err != nil {
		return err
	}
	ref.Path = baseFile
	var r record
	r.open(s, id, dir)
	place := func() error { return root.Rename(baseFile+newMark, baseFile) }
	head, err := r.append(EventSandboxRecord, nil, []FileRef{ref}, place)
	if err = errors.Join(err, r.close()); err != nil {
		return diskError("write", s.paths.SandboxBase(id), err)
	}
	return s.enter(auditEntry{EventSandboxHead, id, head})
}

// Update changes the record by fn. When it returns nil the new record is on the disk, and a process that reads the
// record afterwards, after a power cut too, reads it or a later one.
func (r *SandboxRecord) Update(fn func(*SandboxInfo)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.info
	fn(&next)
	data, err := MarshalIndent(next)
	if err != nil {
		return err
	}
	if err := r.replace(sandboxFile, data); err != nil {
		return err
	}
	if err := r.chain.sync(); err != nil {
		return err
	}
	if err := errors.Join(syncDir(r.dir), syncDir(r.store.paths.Sandboxes())); err != nil {
		return err
	}
	r.info = next
	return nil
}

// Remove destroys the sandbox, unless nothing of it was made, by what its intent or its record says, and forgets both.
// The caller holds the lock alone.
func (r *SandboxRecord) Remove(ctx context.Context, destroy func(context.Context, Intent) error) error {
	made := r.info.Intent()
	intent, err := r.store.Intent(r.id)
	switch {
	case err == nil:
		made = intent.Intent // it has the handle while the record has none
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if len(made.Handle) > 0 {
		if err := destroy(ctx, made); err != nil {
			return err
		}
	}
	if err := r.Forget(); err != nil || intent == nil {
		return err
	}
	return intent.Done()
}

// Forget removes the record and the backend's directory ([Paths.SandboxState]) after everything else of the sandbox is
// gone, says so in the audit chain, and closes. The caller holds the lock alone.
func (r *SandboxRecord) Forget() error {
	state := r.store.paths.SandboxState(r.id)
	if err := removeAll(state); err != nil {
		return diskError("remove", state, err)
	}
	was := map[string]any{"name": r.info.Name, "state": r.info.State}
	err := r.store.removeRecord(EventSandboxRemoved, r.id, r.dir, was)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.Close()
}

// Close gives the lock back. A second call does nothing.
func (r *SandboxRecord) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	err := errors.Join(r.close(), r.lock.Close())
	r.lock = nil
	return err
}

// maxPrivate bounds private.json, in bytes.
const maxPrivate = 64 << 20

// private is what private.json holds.
type private struct {
	// Nonce is random, so that the file's hash in the event chain helps nobody to guess a secret.
	Nonce string          `json:"nonce"`
	Input []FileRef       `json:"input,omitempty"` // the files below input/ and trust/: no event names them, some are secret
	Value json.RawMessage `json:"value"`
}

// WritePrivate keeps what later commands need and nobody shall be shown, such as the values of variables, and the
// hashes of the files below [SandboxRecord.InputDir] and [SandboxRecord.TrustDir], which must be complete. It is JSON,
// in a file of mode 0600.
func (r *SandboxRecord) WritePrivate(v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}
	p := private{Nonce: rand.Text(), Value: value}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return diskError("open", r.dir, err)
	}
	defer root.Close()
	for _, dir := range []string{sandboxInputDir, sandboxTrustDir} {
		err = fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			ref, err := refFile(context.Background(), root, name)
			p.Input = append(p.Input, ref)
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError("read", filepath.Join(r.dir, dir), err)
		}
	}
	data, err := MarshalIndent(p)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replace(sandboxPrivateFile, data)
}

// ReadPrivate reads what WritePrivate wrote into v, which stays as it is when nothing was.
func (r *SandboxRecord) ReadPrivate(v any) error {
	path := filepath.Join(r.dir, sandboxPrivateFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var p private
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err == nil {
		err = json.Unmarshal(p.Value, v)
	}
	if err != nil {
		return diskError("read", path, err)
	}
	return nil
}

// readInputRefs reads what the private part of a record says about its input.
func readInputRefs(root *os.Root) ([]FileRef, error) {
	b, err := safefile.ReadFile(root, sandboxPrivateFile, maxPrivate)
	if refused := (*safefile.Error)(nil); errors.As(err, &refused) && refused.Reason == safefile.ReasonMissing {
		return nil, nil // which the chain speaks of when there was one
	}
	if err != nil {
		return nil, err
	}
	var p private
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	return p.Input, nil
}

// maxSandboxName bounds the name of a sandbox or of a project, in bytes.
const maxSandboxName = 64

// CheckName refuses what cannot be the name of a sandbox or a project: it begins with a letter, so that no option and
// no id is taken for one, and holds letters, digits, '_', '.' and '-', so that NAME:PATH is not ambiguous.
func CheckName(name string) error {
	const upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const allowed = letters + upper + digits + "_.-"
	if name != "" && len(name) <= maxSandboxName && madeOf(name[:1], letters+upper) && madeOf(name, allowed) {
		return nil
	}
	return fmt.Errorf("%.80q cannot be a name: want up to %d letters, digits, '_', '.' and '-', a letter first",
		name, maxSandboxName)
}

// Owner is what backends mark everything with that they make for this store, and for no other.
func (s *Store) Owner() string {
	sum := sha256.Sum256([]byte(s.paths.Data))
	return "hutch-" + hex.EncodeToString(sum[:6])
}

// Original returns the top of the store that this one is a copy of, so that the sandbox id, which was made in the
// store at home, is another one's: nothing here may touch it. It is "" when the sandbox was made here, or when the
// store was moved, so that nothing is left there.
func (s *Store) Original(home, id string) string {
	if home == "" || home == s.paths.Data {
		return ""
	}
	there, err := os.Stat(Paths{Data: home}.SandboxState(id))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if here, herr := os.Stat(s.paths.SandboxState(id)); err == nil && herr == nil && os.SameFile(here, there) {
		return "" // the same store by another path
	}
	return home
}

// lockNames keeps other processes from giving out names until the returned file is closed.
func (s *Store) lockNames() (*os.File, error) {
	path := filepath.Join(s.paths.Sandboxes(), ".names.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, diskError("open", path, err)
	}
	if err := lockFile(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, diskError("lock", path, err)
	}
	return f, nil
}

// freeName checks that name is not among the taken ones, or finds one like want.
func freeName(name, want string, taken map[string]bool) (string, error) {
	if name != "" {
		if err := CheckName(name); err != nil {
			return "", err
		}
		if taken[name] {
			return "", fmt.Errorf("%w: there is a sandbox %q (`hutch rm %s` removes it)", ErrNameTaken, name, name)
		}
		return name, nil
	}
	want = likeName(want)
	for n := 1; ; n++ {
		name = want
		if n > 1 {
			name = fmt.Sprintf("%s-%d", want, n)
		}
		if !taken[name] {
			return name, nil
		}
	}
}

// likeName makes a name out of any text, with room for a number behind it.
func likeName(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r < 0x80 && madeOf(string(r), letters+digits+"_.-"):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	name := strings.TrimLeft(b.String(), digits+"_.-")
	name = strings.TrimRight(name[:min(len(name), maxSandboxName-8)], "_.-")
	if name == "" {
		return "sandbox"
	}
	return name
}

// Sandboxes returns the records of all persistent sandboxes, oldest first. One that cannot be read is listed as
// [SandboxDamaged].
func (s *Store) Sandboxes() ([]SandboxInfo, error) {
	entries, err := entriesOf(s.paths.Sandboxes()) // ids sort by time
	if err != nil {
		return nil, err
	}
	var list []SandboxInfo
	for _, e := range entries {
		if !isRunID(e.Name()) {
			continue
		}
		info, err := s.readSandbox(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		list = append(list, info)
	}
	return list, nil
}

// readSandbox reads sandbox.json. A record that cannot be read is in the value, as damaged; the error says only that
// it is missing. A sandbox whose owner is gone is [SandboxRemoving], whatever its record says.
func (s *Store) readSandbox(id string) (SandboxInfo, error) {
	var info SandboxInfo
	path := filepath.Join(s.paths.Sandbox(id), sandboxFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(s.paths.Sandbox(id)); lerr != nil {
			return info, err
		}
	}
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	switch {
	case err != nil:
	case info.Schema != SandboxSchema:
		err = fmt.Errorf("%s: schema %.40q is not %s", sandboxFile, info.Schema, SandboxSchema)
	case info.ID != id || CheckName(info.Name) != nil:
		err = fmt.Errorf("%s: it is the record of %.40q, %.40q", sandboxFile, info.ID, info.Name)
	case info.State != SandboxCreating && info.State != SandboxReady && info.State != SandboxRemoving:
		err = fmt.Errorf("%s: state %.40q", sandboxFile, info.State)
	}
	if err != nil {
		made, _ := idTime(id)
		return SandboxInfo{Schema: SandboxSchema, ID: id, State: SandboxDamaged, Created: made, Damage: err.Error()}, nil
	}
	if info.State == SandboxCreating && !info.Host.Alive() || info.EndsWith != nil && !info.EndsWith.Alive() {
		info.State = SandboxRemoving
	}
	return info, nil
}

// FindSandbox finds the one sandbox that ref means: a name, a full id, or an unambiguous prefix of an id or of the last
// part of one. It returns [ErrNoSandbox] or [ErrAmbiguous].
func (s *Store) FindSandbox(ref string) (SandboxInfo, error) {
	if isRunID(ref) { // which is nobody's name: there is no need to read the others
		if i, err := s.readSandbox(ref); err == nil {
			return i, nil
		}
	}
	list, err := s.Sandboxes()
	if err != nil {
		return SandboxInfo{}, err
	}
	var named, found []SandboxInfo
	for _, i := range list {
		switch {
		case ref != "" && i.Name == ref && i.State == SandboxRemoving: // another one may have the name by now
			named = append(named, i)
		case ref != "" && (i.Name == ref || i.ID == ref):
			return i, nil
		case ref != "" && (strings.HasPrefix(i.ID, ref) || strings.HasPrefix(i.ID[len(idLayout)+1:], ref)):
			found = append(found, i)
		}
	}
	if len(named) > 0 {
		return named[0], nil
	}
	switch len(found) {
	case 0:
		return SandboxInfo{}, fmt.Errorf("%w: %.80q (`hutch ps` lists them)", ErrNoSandbox, ref)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, i := range found[:min(len(found), 5)] {
		names = append(names, i.ID+" ("+i.Name+")")
	}
	return SandboxInfo{}, fmt.Errorf("%w: %.40q fits %d sandboxes, among them %s",
		ErrAmbiguous, ref, len(found), strings.Join(names, ", "))
}

// OpenSandbox locks the record of one sandbox, by its full id, for this process alone or together with others, and
// waits up to timeout for another process that holds it: then the error is [ErrInUse]. It returns the record in
// whatever state it is.
func (s *Store) OpenSandbox(
	ctx context.Context, id string, alone bool, timeout time.Duration) (*SandboxRecord, error) {
	dir := s.paths.Sandbox(id)
	gone := fmt.Errorf("%w: %.80q", ErrNoSandbox, id)
	if !isRunID(id) {
		return nil, gone
	}
	how, mode := unix.LOCK_SH, os.O_RDONLY // so that a store on a read-only file system can be looked at
	if alone {
		how, mode = unix.LOCK_EX, os.O_RDWR
	}
	path := filepath.Join(dir, sandboxLockFile)
	f, err := os.OpenFile(path, mode|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(dir); lerr != nil {
			return nil, gone
		}
		// Somebody took it away by hand; without a lock there would be no way to remove the sandbox.
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	if err != nil {
		return nil, diskError("open", path, err)
	}
	if err := flock.Try(f, how); errors.Is(err, flock.ErrLocked) && timeout > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, timeout, flock.ErrLocked)
		err = flock.Wait(wait, f, how)
		cancel()
		if err != nil {
			f.Close()
			return nil, lockError(id, err)
		}
	} else if err != nil {
		f.Close()
		return nil, lockError(id, err)
	}
	info, err := s.readSandbox(id)
	if err != nil || !sameFile(f, path) {
		f.Close()
		return nil, gone
	}
	r := &SandboxRecord{lock: f, info: info}
	r.open(s, id, dir)
	return r, nil
}

func lockError(id string, err error) error {
	if errors.Is(err, flock.ErrLocked) {
		return ErrInUse
	}
	return fmt.Errorf("lock sandbox %s: %w", id, err)
}
