package language

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Program is an entrypoint and what lies around it.
type Program struct {
	Language    *Language // nil when only Interpreter says how it is run
	Interpreter []string  // instead of the language's own
	Entrypoint  string    // clean slash path below the input or the workspace
	InWorkspace bool
	Args        []string

	Input, Workspace string // directories as the sandbox sees them
	Network          bool

	Files []string // paths of the declared files
	// Read returns the beginning of a file beside the entrypoint (of the input or the workspace, as InWorkspace
	// says), or false. Nil means that nothing can be read.
	Read func(name string) ([]byte, bool)
}

// Command is how a program is started.
type Command struct {
	Argv []string
	Env  map[string]string
	// PathEnv are lists of directories, to be appended to what the run sets for the same variable.
	PathEnv map[string][]string
	// Generated are files that have to be put beside the declared ones.
	Generated []Generated
}

// Generated is a file that hutch adds to the input.
type Generated struct {
	Path    string
	Content string
}

// Command says how p is started.
func (p *Program) Command() Command {
	dir := p.Input
	if p.InWorkspace {
		dir = p.Workspace
	}
	c := Env(p.Language, p.Input, p.Workspace, p.Network)
	argv := p.Interpreter
	if len(argv) == 0 && p.Language != nil {
		argv = p.Language.Interpreter
	}
	c.Argv = append(slices.Clone(argv), path.Join(dir, p.Entrypoint))
	c.Argv = append(c.Argv, p.Args...)
	if p.Language != nil && p.Language.prepare != nil && len(p.Interpreter) == 0 {
		p.Language.prepare(p, &c)
	}
	return c
}

// Env says what environment a language wants, for commands without an entrypoint. l may be nil.
func Env(l *Language, input, workspace string, network bool) Command {
	c := Command{Env: map[string]string{}, PathEnv: map[string][]string{}}
	if l == nil {
		return c
	}
	maps.Copy(c.Env, l.Env)
	if !network {
		maps.Copy(c.Env, l.Offline)
	}
	for _, name := range l.PathEnv {
		for _, dir := range []string{input, workspace} {
			if dir != "" {
				c.PathEnv[name] = append(c.PathEnv[name], dir)
			}
		}
	}
	return c
}

// Merge adds c's environment to env: a variable that env holds wins, and a list of directories goes after what env
// holds.
func (c *Command) Merge(env map[string]string) {
	for k, v := range c.Env {
		if _, set := env[k]; !set {
			env[k] = v
		}
	}
	for k, dirs := range c.PathEnv {
		list := strings.Join(dirs, ":")
		if old := env[k]; old != "" {
			list = old + ":" + list
		}
		env[k] = list
	}
}
