package sdk

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Spec is what a sandbox shall be like.
type Spec struct {
	// Config points to a value of [Description.Config]'s type, filled from the
	// backend block of the run file, defaults included. It is nil when the backend
	// has no configuration.
	Config any

	Limits    Limits
	Network   NetworkMode
	Rules     NetworkRules // with [NetworkFiltered] and [NetworkFull]
	Workspace Workspace

	// Input is a host directory that the sandbox sees read-only; "" means none. There is no capability for it: a backend
	// that cannot show it refuses to create. Ready.Input says where commands find it.
	Input string

	// Mounts are further host directories that the sandbox sees.
	Mounts []Mount
}

// NeedDirectory refuses a directory of this machine that a request names and that is missing. what it is stands in the
// error. It takes an empty path for no directory.
func NeedDirectory(what, path string) error {
	if path == "" {
		return nil
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return Errorf(ReasonConfig, "the %s is not there: %w", what, err)
	case !st.IsDir():
		return Errorf(ReasonConfig, "the %s %s is not a directory", what, path)
	}
	return nil
}

// ConfigOf returns the configuration of a backend whose [Description.Config] is a T. That of a spec without one has the
// defaults of T's tags.
func ConfigOf[T any](spec *Spec) *T {
	if c, ok := spec.Config.(*T); ok && c != nil {
		return c
	}
	t := reflect.TypeFor[T]()
	fields, _ := fieldsOf(t, nil) // the tags were checked when the backend was served
	if c, _ := decodeConfig(t, fields, nil); c != nil {
		return c.(*T)
	}
	return new(T) // an attribute is required
}

// Relocate changes the paths of s that lie in the host's store after that was moved. was and is are the sandbox's state
// directory at Create and now, which lies two levels below the store's top.
func (s *Spec) Relocate(was, is string) {
	from, to := filepath.Dir(filepath.Dir(was)), filepath.Dir(filepath.Dir(is))
	if was == "" || is == "" || from == to {
		return
	}
	paths := []*string{&s.Workspace.Source, &s.Input}
	s.Mounts = slices.Clone(s.Mounts)
	for i := range s.Mounts {
		paths = append(paths, &s.Mounts[i].Source)
	}
	for _, p := range paths {
		if rest, ok := strings.CutPrefix(*p, from+"/"); ok {
			*p = filepath.Join(to, rest)
		}
	}
}

// Mount makes a host directory visible inside the sandbox.
type Mount struct {
	Source   string // absolute host path; "" in a Plan when what is to be mounted does not exist yet
	Target   string // absolute path inside the sandbox, not below /workspace
	ReadOnly bool
}

// Workspace is the project directory as the sandbox sees it, at /workspace.
type Workspace struct {
	Source string // absolute host path; "" gives an empty directory that lives and dies with the sandbox
	Mode   WorkspaceMode
}

// isEmpty says that w is the empty directory which every sandbox has when no other is wanted.
func (w Workspace) isEmpty() bool {
	return w.Source == "" && (w.Mode == "" || w.Mode == WorkspacePrivate)
}

// WorkspaceMode says where writes to the workspace go.
type WorkspaceMode string

// The workspace modes.
const (
	WorkspacePrivate  WorkspaceMode = "private"  // they stay in the sandbox
	WorkspaceShared   WorkspaceMode = "shared"   // they land in the host directory at once
	WorkspaceReadOnly WorkspaceMode = "readonly" // there are none
)

// NetworkMode says what the sandbox reaches.
type NetworkMode string

// The network modes.
const (
	NetworkNone     NetworkMode = "none"     // nothing, not even the host's loopback
	NetworkFiltered NetworkMode = "filtered" // what [NetworkRules] allow
	// NetworkFull reaches every public name and address, and what [NetworkRules] allow besides. A backend that does not
	// claim NetworkFiltered gets no rules, and says in a note what else its full network reaches.
	NetworkFull NetworkMode = "full"
)

// NetworkRules are the destinations that commands of a filtered network reach, over TCP, by any program and protocol;
// nothing else of the network can be reached. To a full network they add what is not public, and take away. Package
// network has the syntax of a rule and decides: a backend need not read them itself.
type NetworkRules struct {
	Allow, Deny []string // a rule of Deny wins over every rule of Allow
}

// Secret is a value that commands use without seeing it: they have the placeholder. Package network puts the value in,
// outside of the sandbox, in the headers and the query of HTTP requests to Hosts, once one of Rules matches, and the
// placeholder where a response holds the value. It must not get into a handle, a log or an error.
type Secret struct {
	Name        string
	Placeholder string // at least 16 characters of A-Z, a-z, 0-9, '_' and '-'
	Value       string
	Hosts       []string     // NAME or *.NAME with an optional :PORT, as in [NetworkRules]; without it, ports 443 and 80
	Rules       []SecretRule // empty: any request
}

// String hides the value.
func (s Secret) String() string { return "secret " + s.Name }

// GoString hides the value.
func (s Secret) GoString() string { return s.String() }

// SecretRule is a kind of request that may carry a secret.
type SecretRule struct {
	Methods []string `json:"methods,omitempty"` // such as GET; empty: any
	Paths   []string `json:"paths,omitempty"`   // such as /repos/acme/*, where * matches any characters but encoded separators; empty: any
}

// Budget bounds the requests of one command to hosts of its secrets, which say in their answers what tokens they used,
// as providers of models do. A request beyond it is answered 402. What a request uses is known with its answer: those
// that are under way when the budget is used up may go beyond it. 0 stands for no bound.
type Budget struct {
	Requests int64
	Tokens   int64   // of input and output, those of caches included
	Cost     float64 // in the currency of Prices
	Prices   []Price // the first whose model matches; a model that has none costs as much as the dearest
}

// Price is what a model costs for a million tokens.
type Price struct {
	Model                                string // * matches any characters
	Input, Output, CacheRead, CacheWrite float64
}

// Authority signs the certificates with which a backend answers commands in the name of a secret's hosts. Commands
// trust it, because the host has mounted its certificate.
type Authority struct {
	Certificate []byte // PEM
	Key         []byte // PEM, PKCS #8; as secret as [Secret.Value]
}

// CreateRequest asks for a sandbox.
type CreateRequest struct {
	Spec

	// ID is chosen by the host: 1 to 64 characters of a-z, 0-9 and '-'.
	ID string
	// Owner marks everything that Create makes, so that [Lister] finds it again.
	Owner string
	// StateDir is a private host directory (0700) for this sandbox. It exists, and
	// the host removes it after Destroy. The SDK keeps the handle in it, in a file
	// that begins with ".hutch-".
	StateDir string
	// Keep says that the sandbox shall outlive the plugin process.
	Keep bool
	// From is a sandbox that was made with Keep and the same Config and Workspace, or nil: the new one begins with a copy
	// of what was written to its workspace and output. It may be ready; no command runs in it, and Create leaves it as it
	// is. Their state directories lie beside each other, where the backend may keep what several of them share, under a
	// name with a dot. Only with [Description.Fork].
	From *Handle
	// Ahead says that the sandbox is made before anybody asks for it, so that little is left to do then. The host calls
	// [Stopper.Start] once before it uses the sandbox, and only while Workspace.Source is the same directory with the same
	// owner and mode. From then on the sandbox must be like one that is made at that time: show the source as it is, and
	// compare with that in [ChangeLister]. Where it cannot be, Start returns an error, and the host makes another one. A
	// spec for which this is not worth it is an [Error] with [ReasonUnsupported]. Only with [Description.Ahead], and never
	// with Keep.
	Ahead bool

	// Allocated sends the handle to the host. Call it before anything exists outside
	// the process, and again when Data changes; it returns once the host has the
	// handle on disk. An empty ID in it stands for the ID above. A backend that
	// makes nothing outside its process need not call it.
	Allocated func(Handle) error
	// Progress shows the user what is going on. Total 0 means unknown.
	Progress func(step string, done, total int64)
}

// Ready says what a sandbox really is.
type Ready struct {
	// Paths as the command sees them. Input is "" without input files, Output is "" when
	// the backend collects none. With a [Workspace.Source] both lie outside of Workspace, for a project may have
	// directories of these names: see package guestpath.
	Workspace, Input, Output string
	// Holds says how each limit is held, defaults of the backend included.
	Holds []Hold
	// Notes are what a careful user should know, one sentence each.
	Notes []string
	// Layers says where the workspace lies on this host; nil when it cannot be read there. The paths stay the same until
	// Destroy, also over a Reset, and Attach returns them again.
	Layers *Layers
	// Exchange is a directory that this host and the commands of the sandbox both see, or nil. It stays
	// where it is until Destroy, also over a Reset, and Attach returns it again.
	Exchange *Exchange
}

// Exchange is one directory under its two names. Both sides write, and rename within it in one step; what one side has
// renamed there the other side finds whole under the new name. It is the sandbox's own: no other sandbox sees it. The
// host hands in and fetches what is too big for [Putter] and [Getter] to be quick, such as git bundles, and takes every
// name, type and byte of it for hostile. Destroy removes it, if the host has not done so.
type Exchange struct {
	Host  string // absolute, on this host
	Guest string // absolute, as commands see it
}

// Layers are the host directories that a workspace is made of, so that a host can read it without asking the backend. A
// file of Upper hides the one of Lower, as in an overlay file system: a character device 0:0 in Upper hides what is of
// its name in Lower, and a directory of Upper with the attribute user.overlay.opaque = "y" hides all that is in that of
// Lower. Where Lower is "" nothing is hidden, and both are data.
//
// The host only reads below them: it writes with [Putter] and [Remover], for an overlay must not change under its
// mount. What commands write is hostile. In a workspace without Lower, [Ready.Input] and [Ready.Output] are not part of
// the layers, even where they lie in the workspace.
type Layers struct {
	// Lower is the project, absolute, which no command changes while it is hidden below Upper; "" when the workspace was
	// not made from a directory. A shared or read-only workspace is Lower alone.
	Lower string
	// Upper holds what was written, absolute; "" when the workspace is Lower alone.
	Upper string
	// Trusted says that the attributes are called trusted.overlay.*, as those of a mount by root are; those called
	// user.overlay.* are data then.
	Trusted bool
	// Frozen are layers between Upper and Lower, absolute, from the top, that no sandbox writes to, as several forks have
	// them. They are read as Upper is; only with an Upper.
	Frozen []string
}

// Written are the directories with what was written, from the top: nil without Upper.
func (l *Layers) Written() []string {
	if l.Upper == "" {
		return nil
	}
	return append([]string{l.Upper}, l.Frozen...)
}

// Command is one command to run inside a sandbox.
type Command struct {
	Argv []string // Argv[0] is looked up in the sandbox's PATH unless it holds a slash
	// the whole environment; the backend adds HOME, PATH, TERM, LANG only where missing, and TMPDIR where commands cannot
	// have /tmp
	Env  map[string]string
	Dir  string // absolute path inside the sandbox
	User string // "" is the backend's default

	// Stdin, Stdout and Stderr are given to the command as they are wherever that
	// is possible (cmd.Stdout = c.Stdout); a remote backend copies. They are never nil, and
	// the SDK closes them after Exec. With a TTY, Stderr gets nothing.
	Stdin, Stdout, Stderr File

	TTY     *WindowSize       // nil: no terminal
	Resizes <-chan WindowSize // only with a TTY
	Signals <-chan int        // signal numbers to deliver to the command; closed with ctx

	// Timeout is how long the command may run, 0 for no end. The SDK cancels the
	// context; it is here for backends that can have a far end watch it too.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration

	// Secrets are what the command has placeholders of, only with [Description.Secrets], and Authority then signs for
	// their hosts; otherwise nil.
	Secrets   []Secret
	Authority *Authority
	// Budget bounds the requests to hosts of Secrets, only with [Description.Budget]; otherwise nil.
	Budget *Budget

	// Allow are rules of [NetworkRules.Allow] for this command alone, besides those of its sandbox, only with
	// [Description.Allow] and a sandbox that has rules. None is about a port of this machine's loopback. Where commands
	// share a network, those that run at the same time have the rules, too.
	Allow []string
	// Allows are further such rules, while the command runs; closed with ctx.
	Allows <-chan string
	// Decided may be called, from any goroutine, when the command asks for a destination of its filtered network for the
	// first time: nothing is counted yet. [Exit.Traffic] has all of it at the end.
	Decided func(Traffic)

	// Observe asks for [Exit.Files], only with [Description.Observe].
	Observe bool

	// Started must be called once the command runs.
	Started func()
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Rows, Cols uint16 }
