package run

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// defaultPath is the PATH of a command when hutch has to add directories to it and the run sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxHead is how much of an entrypoint or a go.mod is read to tell how it is run.
const maxHead = 64 << 10

// places are the directories that a command sees.
type places struct{ workspace, input, output string }

// expectedPlaces are where the directories will be, as far as can be known before there is a sandbox.
func expectedPlaces(d *runfile.Definition, input bool) places {
	project := d.Workspace != nil && d.Workspace.Source != ""
	p := places{workspace: guestpath.Workspace, output: guestpath.Output(project)}
	if input {
		p.input = guestpath.Input(project)
	}
	return p
}

// places are where the directories are in the sandbox of j.
func (j *job) places(ready sdk.Ready) places {
	at := expectedPlaces(j.d, j.input != "")
	at.workspace, at.output = cmp.Or(ready.Workspace, at.workspace), ready.Output
	if at.input != "" {
		at.input = cmp.Or(ready.Input, at.input)
	}
	return at
}

// invocation is everything that starts the command of a run.
type invocation struct {
	argv      []string
	env       map[string]string
	dir       string
	generated []language.Generated
}

// languageOf reports the language of a run; nil when it has none.
func languageOf(d *runfile.Definition) *language.Language {
	if l, ok := language.ByName(d.Language); ok {
		return l
	}
	if d.Language == "" && len(d.Interpreter) == 0 {
		if l, ok := language.ByPath(d.Entrypoint); ok {
			return l
		}
	}
	return nil
}

// CheckCommand finds an entrypoint that nothing can start. It looks at files of the workspace, and starts nothing.
func CheckCommand(d *runfile.Definition) diag.Diagnostics {
	if d.Entrypoint == "" || len(d.Interpreter) > 0 || languageOf(d) != nil || executable(d) {
		return nil
	}
	return diag.Diagnostics{d.Diagnose("entrypoint",
		fmt.Sprintf("nothing is known to run %q with, and it is not executable", d.Entrypoint),
		"Without language and interpreter, the extension selects the language: "+strings.Join(language.Names(), ", ")+".",
		"set language or interpreter, or make the file executable")}
}

// executable reports whether the entrypoint may be executed by itself.
func executable(d *runfile.Definition) bool {
	if d.EntrypointIn != runfile.InWorkspace {
		return slices.ContainsFunc(d.Files, func(f runfile.File) bool { return f.Path == d.Entrypoint && f.Mode&0o111 != 0 })
	}
	if d.Workspace == nil {
		return false
	}
	root, err := os.OpenRoot(d.Workspace.Source)
	if err != nil {
		return false
	}
	defer root.Close()
	st, err := root.Stat(d.Entrypoint)
	return err == nil && st.Mode()&0o111 != 0
}

// invoke says how the command of d is started when the sandbox looks like at.
func invoke(d *runfile.Definition, id string, at places, deps bool) invocation {
	lang := languageOf(d)
	network := d.Network.Reaches()
	var c language.Command
	if d.Entrypoint == "" {
		c = language.Env(lang, at.input, at.workspace, network)
		c.Argv = append(slices.Clone(d.Command), d.Args...)
	} else {
		p := language.Program{
			Language: lang, Interpreter: d.Interpreter,
			Entrypoint: d.Entrypoint, InWorkspace: d.EntrypointIn == runfile.InWorkspace, Args: d.Args,
			Input: at.input, Workspace: at.workspace, Network: network,
			Read: reader(d),
		}
		for _, f := range d.Files {
			p.Files = append(p.Files, f.Path)
		}
		c = p.Command()
	}
	if deps && lang != nil && lang.Deps != nil {
		c.PathEnv[lang.Deps.PathEnv] = append(c.PathEnv[lang.Deps.PathEnv], lang.Deps.Target)
	}
	env := maps.Clone(d.Env)
	if env == nil {
		env = map[string]string{}
	}
	c.Merge(env)
	bin := deps && lang != nil && lang.Deps != nil && lang.Deps.Bin != ""
	if env["PATH"] == "" && lang != nil && (bin || len(lang.Path) > 0) {
		env["PATH"] = strings.Join(append([]string{defaultPath}, lang.Path...), ":")
	}
	if bin {
		env["PATH"] = path.Join(lang.Deps.Target, lang.Deps.Bin) + ":" + env["PATH"]
	}
	for k, v := range map[string]string{"HUTCH_RUN_ID": id, "HUTCH_WORKSPACE": at.workspace, "HUTCH_INPUT": at.input,
		"HUTCH_OUTPUT": at.output} {
		if v != "" {
			env[k] = v
		}
	}
	dir := d.Workdir
	switch {
	case dir == "":
		dir = at.workspace
	case !path.IsAbs(dir):
		dir = path.Join(at.workspace, dir)
	}
	return invocation{argv: c.Argv, env: env, dir: dir, generated: c.Generated}
}

// reader gives the beginnings of files beside the entrypoint.
func reader(d *runfile.Definition) func(string) ([]byte, bool) {
	if d.EntrypointIn == runfile.InWorkspace {
		if d.Workspace == nil || d.Workspace.Source == "" {
			return nil
		}
		return func(name string) ([]byte, bool) {
			root, err := os.OpenRoot(d.Workspace.Source)
			if err != nil {
				return nil, false
			}
			defer root.Close()
			f, _, err := safefile.Open(root, path.Clean(name), -1)
			if err != nil {
				return nil, false
			}
			defer f.Close()
			b, err := io.ReadAll(io.LimitReader(f, maxHead))
			return b, err == nil
		}
	}
	return func(name string) ([]byte, bool) {
		i := slices.IndexFunc(d.Files, func(f runfile.File) bool { return f.Path == name })
		if i < 0 {
			return nil, false
		}
		f, err := d.Files[i].Open()
		if err != nil {
			return nil, false
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxHead))
		return b, err == nil
	}
}
