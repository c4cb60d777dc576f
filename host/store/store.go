package store

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"sync"
	"time"
)

// Options say where the store lies. The zero value is right for the hutch command.
type Options struct {
	// Home holds everything in one directory. Empty means $HUTCH_HOME, and when that is empty too the XDG
	// directories of the user.
	Home string
	// Version is that of hutch, for the records of runs; it may be empty.
	Version string
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// Store is an open store. It holds no lock, so any number of processes may have one open.
type Store struct {
	paths   Paths
	version string
	now     func() time.Time
	ids     idSource
	audit   *chain

	knownMu sync.Mutex
	known   map[string]knownInfo // by the id of a run
}

// Errors that callers distinguish with [errors.Is].
var (
	// ErrNotFound says that there is no such run.
	ErrNotFound = errors.New("no such run")
	// ErrAmbiguous says that a prefix fits several runs; the error's text lists some of them.
	ErrAmbiguous = errors.New("ambiguous run id")
	// ErrFull says that the disk, the quota or the file size limit left no room. What was there before is intact.
	ErrFull = errors.New("the store is full")
	// ErrUnsafe says that others may write where hutch keeps its records.
	ErrUnsafe = errors.New("unsafe directory")
	// ErrRunning says that the run's host process is still alive.
	ErrRunning = errors.New("the run is still running")
)

// Open finds the store, makes what is missing of it (directories 0700) and refuses one that others may write.
func Open(o Options) (*Store, error) {
	paths, err := findPaths(o.Home)
	if err != nil {
		return nil, err
	}
	for _, dir := range []*string{&paths.Data, &paths.Cache, &paths.State} {
		if *dir, err = privateDir(*dir); err != nil {
			return nil, err
		}
	}
	s := &Store{paths: paths, version: o.Version, now: o.Now}
	if s.now == nil {
		s.now = time.Now
	}
	for _, dir := range []string{paths.Runs(), paths.Sandboxes(), paths.Intents(), paths.Deps()} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, diskError("make", dir, err)
		}
	}
	s.audit = newChain(paths.Audit(), s.now)
	return s, nil
}

// Close closes the audit chain. Close runs first.
func (s *Store) Close() error { return s.audit.close() }

// Paths returns where everything lies.
func (s *Store) Paths() Paths { return s.paths }

// findPaths finds the directories: below home or $HUTCH_HOME, or else those of the XDG base directory specification,
// which says that a relative path in its variables is to be ignored.
func findPaths(home string) (Paths, error) {
	if home == "" {
		home = os.Getenv("HUTCH_HOME")
	}
	if home != "" {
		abs, err := filepath.Abs(home)
		if err != nil {
			return Paths{}, fmt.Errorf("hutch home %q: %w", home, err)
		}
		return Paths{
			Data:   abs,
			Cache:  filepath.Join(abs, "cache"),
			State:  filepath.Join(abs, "state"),
			Config: abs,
		}, nil
	}
	base := os.Getenv("HOME")
	if base == "" { // as under a service manager
		if u, err := user.Current(); err == nil {
			base = u.HomeDir
		}
	}
	if !filepath.IsAbs(base) {
		return Paths{}, fmt.Errorf("HOME is %q and names no home directory for the store: "+
			"set HOME or HUTCH_HOME to an absolute path", base)
	}
	dir := func(variable, otherwise string) string {
		if dir := os.Getenv(variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, "hutch")
		}
		return filepath.Join(base, otherwise, "hutch")
	}
	return Paths{
		Data:   dir("XDG_DATA_HOME", ".local/share"),
		Cache:  dir("XDG_CACHE_HOME", ".cache"),
		State:  dir("XDG_STATE_HOME", ".local/state"),
		Config: dir("XDG_CONFIG_HOME", ".config"),
	}, nil
}

// Paths knows where everything lies. Its methods name places; they make nothing.
type Paths struct {
	Data   string // runs, sandboxes, projects, the audit chain: worth a backup
	Cache  string // dependencies and anything else that can be made again
	State  string // intents and locks: what is going on now
	Config string // the user's own configuration
}

// Runs is the directory of all runs.
func (p Paths) Runs() string { return filepath.Join(p.Data, "runs") }

// Run is the directory of one run.
func (p Paths) Run(id string) string { return filepath.Join(p.Runs(), id) }

// Content is the directory of what the files of several runs have in common: a link for each large content.
func (p Paths) Content() string { return filepath.Join(p.Data, "content") }

// Audit is the chain that records the begin, end and removal of every run.
func (p Paths) Audit() string { return filepath.Join(p.Data, "audit.jsonl") }

// Sandboxes is the directory of all sandboxes' state.
func (p Paths) Sandboxes() string { return filepath.Join(p.Data, "sandboxes") }

// Sandbox is the directory of the record that hutch keeps of a sandbox which outlives its command.
func (p Paths) Sandbox(id string) string { return filepath.Join(p.Sandboxes(), id) }

// SandboxState is the directory that the backend of one sandbox keeps its own state in. It lies beside the record and
// not in it, because most sandboxes live for one run and have no record.
func (p Paths) SandboxState(id string) string { return p.Sandbox(id) + stateSuffix }

// stateSuffix cannot occur in the id of a sandbox.
const stateSuffix = ".state"

// SandboxBase is the file that says what the workspace's source of a persistent sandbox looked like when it was made.
func (p Paths) SandboxBase(id string) string { return filepath.Join(p.Sandbox(id), baseFile) }

// Applies is where applies of sandboxes' changes are journaled, with what they replaced.
func (p Paths) Applies() string { return filepath.Join(p.Data, "applies") }

// Ingested is the directory of the runs that were made of models' answers.
func (p Paths) Ingested() string { return filepath.Join(p.Data, "ingested") }

// IngestedRun is the directory of one run that was made of an answer.
func (p Paths) IngestedRun(id string) string { return filepath.Join(p.Ingested(), id) }

// Projects is the directory of the shared project directories.
func (p Paths) Projects() string { return filepath.Join(p.Data, "projects") }

// Project is the directory of one project, and ProjectFiles the one that sandboxes have as their workspace.
func (p Paths) Project(name string) string { return filepath.Join(p.Projects(), name) }

// ProjectFiles is the directory of a project's own files.
func (p Paths) ProjectFiles(name string) string { return filepath.Join(p.Project(name), "files") }

// Agents is where the home directories of coding agents are.
func (p Paths) Agents() string { return filepath.Join(p.Data, "agents") }

// Presets is where the user's presets of coding agents are.
func (p Paths) Presets() string { return filepath.Join(p.Config, "agents") }

// Deps is the root of the dependency cache.
func (p Paths) Deps() string { return filepath.Join(p.Cache, "deps") }

// Installed is where backends that were installed by themselves lie, and InstalledLock the file that says which of them
// are used where no project has its own lock file.
func (p Paths) Installed() string { return filepath.Join(p.Data, "backends") }

// InstalledLock is the user's own lock file; see Installed.
func (p Paths) InstalledLock() string { return filepath.Join(p.Installed(), "lock.hcl") }

// Backends is the cache of what is known about plugin binaries: their hashes and descriptions.
func (p Paths) Backends() string { return filepath.Join(p.Cache, "backends") }

// BackendLogs is the directory of what backends write on stderr, a file for each.
func (p Paths) BackendLogs() string { return filepath.Join(p.State, "backends") }

// Intents is the directory of intent records.
func (p Paths) Intents() string { return filepath.Join(p.State, "intents") }

// ConfigFile is the user's configuration in HCL; it need not exist.
func (p Paths) ConfigFile() string { return filepath.Join(p.Config, "config.hcl") }
