package store

import "path/filepath"

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

// Deps is the root of the dependency cache.
func (p Paths) Deps() string { return filepath.Join(p.Cache, "deps") }

// Installed is where backends that were installed by themselves lie, and InstalledLock the file that says which of them
// are used where no project has a lock file of its own.
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
