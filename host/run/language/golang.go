package language

import (
	"path"
	"slices"
	"strings"
)

// defaultGo is the language version of a module that hutch makes. `go run FILE…` needs none and has that of the
// toolchain, so it is used wherever it will do.
const defaultGo = "1.22"

// golang makes the files of an entrypoint's directory one program. A directory on its own is given to `go run` file by
// file. One with packages beside it needs a module, and gets one named run when it has none; a workspace file lets
// `go run` find it while the working directory stays where the run wants it.
func golang(p *Program, c *Command) {
	dir := path.Dir(p.Entrypoint)
	if p.InWorkspace {
		// The files of a workspace are not known here. With a module the directory is the program, without one the file.
		// Go finds the module by itself, because the working directory lies in the workspace.
		if _, ok := moduleAbove(p, dir); ok {
			c.Argv = append([]string{"go", "run", path.Join(p.Workspace, dir)}, p.Args...)
		}
		return
	}
	var siblings, elsewhere []string
	for _, f := range p.Files {
		switch {
		case path.Ext(f) != ".go" || strings.HasSuffix(f, "_test.go"):
		case path.Dir(f) == dir:
			siblings = append(siblings, f)
		default:
			elsewhere = append(elsewhere, f)
		}
	}
	root, declared := moduleAbove(p, dir)
	ambiguous := len(p.Args) > 0 && strings.HasSuffix(p.Args[0], ".go") // go run would take it for one more file
	if !declared && len(elsewhere) == 0 && !ambiguous {
		argv := []string{"go", "run"}
		for _, f := range siblings {
			argv = append(argv, path.Join(p.Input, f))
		}
		c.Argv = append(argv, p.Args...)
		return
	}
	version := defaultGo
	if !declared {
		root = "."
		c.Generated = append(c.Generated, Generated{Path: "go.mod", Content: "module run\n\ngo " + version + "\n"})
	} else if mod, ok := p.Read(path.Join(root, "go.mod")); ok {
		version = goLine(string(mod))
	}
	if !slices.Contains(p.Files, "go.work") {
		use := "."
		if root != "." {
			use = "./" + root
		}
		c.Generated = append(c.Generated, Generated{Path: "go.work", Content: "go " + version + "\n\nuse " + use + "\n"})
	}
	c.Env["GOWORK"] = path.Join(p.Input, "go.work")
	c.Argv = append([]string{"go", "run", path.Join(p.Input, dir)}, p.Args...)
}

// moduleAbove finds the nearest directory from dir upwards that holds a go.mod.
func moduleAbove(p *Program, dir string) (string, bool) {
	if p.Read == nil {
		return "", false
	}
	for {
		if _, ok := p.Read(path.Join(dir, "go.mod")); ok {
			return dir, true
		}
		if dir == "." || dir == "/" {
			return "", false
		}
		dir = path.Dir(dir)
	}
}

// goLine finds the language version that a go.mod asks for.
func goLine(mod string) string {
	for line := range strings.Lines(mod) {
		line, _, _ = strings.Cut(line, "//")
		if f := strings.Fields(line); len(f) == 2 && f[0] == "go" {
			return f[1]
		}
	}
	return defaultGo
}
