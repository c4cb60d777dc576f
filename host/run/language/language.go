// Package language knows how programs of each language are started: which file extension means which language, with
// which interpreter a file of it runs, and which environment makes the declared files import one another.
//
// All of it is one [Table]. A new language is a new entry there; only what a language cannot say as data (go's
// modules, a script's own interpreter) is code.
package language

import (
	"path"
	"slices"
	"strings"
)

// Language is one entry of the table.
type Language struct {
	Name       string
	Extensions []string // of entrypoints, with the dot
	// Interpreter is the argv before the file.
	Interpreter []string
	// Env is set unless the run sets the same variable.
	Env map[string]string
	// PathEnv names the variables in which the language looks for code. They get the input and the workspace, in this
	// order, after whatever the run itself sets there.
	PathEnv []string
	// Path are directories of the interpreter beyond the usual ones. They go to the end of the PATH, unless the run sets
	// one.
	Path []string
	// Offline is added to Env when the run has no network.
	Offline map[string]string

	// Deps says how installed dependencies are seen; nil when hutch installs none for the language.
	Deps *Deps

	// prepare changes the command in ways that a table cannot say; nil for most.
	prepare func(p *Program, c *Command)
}

// Deps says how the installed dependencies of a language are mounted.
type Deps struct {
	Target  string // where the directory Sub of a cache entry is mounted in the sandbox; outside of /workspace
	Sub     string // directory of the cache entry; "" for all of it
	PathEnv string // variable that gets Target
	Bin     string // directory of programs below Target, which is put on the PATH
}

// Table is every language hutch knows, in the order in which they are listed to users.
var Table = []Language{
	{
		Name:        "python",
		Extensions:  []string{".py"},
		Interpreter: []string{"python3"},
		Env: map[string]string{
			"PYTHONUNBUFFERED":        "1", // a program that is killed must not take its last lines along
			"PYTHONDONTWRITEBYTECODE": "1", // the input is read-only, and caches are no change of a workspace
		},
		PathEnv: []string{"PYTHONPATH"},
		Deps:    &Deps{Target: "/opt/hutch/deps/python", PathEnv: "PYTHONPATH", Bin: "bin"},
	},
	{
		Name:        "javascript",
		Extensions:  []string{".js", ".mjs", ".cjs"},
		Interpreter: []string{"node"},
		PathEnv:     []string{"NODE_PATH"},
		// ES modules ignore NODE_PATH, but find a node_modules in any directory above the file: the root is above all.
		Deps: &Deps{Target: "/node_modules", Sub: "node_modules", PathEnv: "NODE_PATH", Bin: ".bin"},
	},
	{
		Name:        "shell",
		Extensions:  []string{".sh", ".bash"},
		Interpreter: []string{"sh"},
		prepare:     shell,
	},
	{
		Name:        "go",
		Extensions:  []string{".go"},
		Interpreter: []string{"go", "run"},
		Env: map[string]string{
			"GOCACHE":     "/tmp/hutch-go/cache",
			"GOPATH":      "/tmp/hutch-go/path",
			"GOTOOLCHAIN": "local",
			"GOFLAGS":     "-buildvcs=false",
		},
		Path:    []string{"/usr/local/go/bin"}, // where its own installer puts it
		Offline: map[string]string{"GOPROXY": "off"},
		prepare: golang,
	},
	{
		Name:        "ruby",
		Extensions:  []string{".rb"},
		Interpreter: []string{"ruby"},
		PathEnv:     []string{"RUBYLIB"},
	},
	{
		Name:        "perl",
		Extensions:  []string{".pl", ".pm"},
		Interpreter: []string{"perl"},
		PathEnv:     []string{"PERL5LIB"},
	},
}

// ByName finds a language by its name.
func ByName(name string) (*Language, bool) {
	for i := range Table {
		if Table[i].Name == name {
			return &Table[i], true
		}
	}
	return nil, false
}

// ByPath finds a language by the extension of an entrypoint, in any case.
func ByPath(p string) (*Language, bool) {
	ext := strings.ToLower(path.Ext(p))
	if ext == "" {
		return nil, false
	}
	for i := range Table {
		if slices.Contains(Table[i].Extensions, ext) {
			return &Table[i], true
		}
	}
	return nil, false
}

// Names lists the languages.
func Names() []string {
	names := make([]string, len(Table))
	for i := range Table {
		names[i] = Table[i].Name
	}
	return names
}
