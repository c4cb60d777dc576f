package run

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/piped"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run/deps"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	"github.com/hutch-run/hutch/sdk/tree"
)

const (
	// installTimeout bounds one installation.
	installTimeout = 10 * time.Minute
	// installTail is how much of what an installer says is kept.
	installTail = 16 << 10
	// maxBundle bounds a file of certificates.
	maxBundle = 8 << 20
)

// dependencies sees to it that what the run depends on is installed, and mounts it.
func (j *job) dependencies(ctx context.Context) error {
	if !j.d.Installs() {
		return nil
	}
	sp := j.span.child("dependencies")
	defer sp.end()
	id, settings, err := j.r.identify(j.d, j.chosen)
	if err != nil {
		return err
	}
	lang, _ := language.ByName(id.Language)
	said := ""
	e, err := j.r.opt.Store.Deps(ctx, id.Language, id.Key(), func(ctx context.Context, dir string) error {
		var err error
		said, err = j.install(ctx, id, settings, dir)
		return err
	})
	if err != nil {
		return err
	}
	j.deps = append(j.deps, e)
	if said == "" {
		said = "cache"
	}
	fetched, err := deps.Fetched(id.Language, e.Dir)
	j.note(err, "dependencies")
	dep := result.Dependencies{Fetched: fetched, Language: id.Language, Installer: said, Packages: id.Packages,
		Locked: id.Lock != nil, Cached: !e.Built, Key: id.Key()}
	j.res.Dependencies = append(j.res.Dependencies, dep)
	j.event(store.EventDependencies, dep)
	j.mounts = append(j.mounts, sdk.Mount{Source: filepath.Join(e.Dir, lang.Deps.Sub), Target: lang.Deps.Target,
		ReadOnly: true})
	return nil
}

// identify says what the dependencies of a run are, exactly.
func (r *Runner) identify(d *runfile.Definition, c *choice) (deps.Identity, deps.Settings, error) {
	lang := languageOf(d)
	fail := func(summary, fix string) (deps.Identity, deps.Settings, error) {
		return deps.Identity{}, deps.Settings{}, diags(d.Diagnose("dependencies", summary, "", fix))
	}
	if lang == nil {
		return fail("dependencies of which language?", `add language = "`+strings.Join(deps.Languages(), `" or "`)+`"`)
	}
	in := deps.For(lang.Name)
	if len(in) == 0 || lang.Deps == nil {
		return fail(fmt.Sprintf("hutch installs no dependencies for %s", lang.Name),
			"it does for "+strings.Join(deps.Languages(), " and "))
	}
	if err := deps.Check(d.Dependencies); err != nil {
		return fail(err.Error(), "list names of packages, with versions")
	}
	settings := deps.SettingsFrom(lang.Name, r.opt.Environ)
	packages := d.Dependencies
	var lock *deps.Lock
	if d.LockFile != "" {
		var err error
		if lock, err = deps.ParseLock(lang.Name, d.LockFile); err != nil {
			return deps.Identity{}, settings, diags(d.Diagnose("lock_file", "the lock file of the dependencies: "+err.Error(),
				"", ""))
		}
		if packages = lock.Packages; len(d.Dependencies) > 0 {
			return deps.Identity{}, settings, diags(d.Diagnose("lock_file",
				"the lock file does not have "+strings.Join(d.Dependencies, " "), "",
				"add it to the lock file"))
		}
		if d.MinAge > 0 {
			return fail("a lock file says which releases are installed; a least age does nothing", "leave out --min-age")
		}
	}
	id := deps.Identity{
		Language: lang.Name, Packages: packages, Lock: lock, MinAge: d.MinAge, Arch: runtime.GOOS + "/" + runtime.GOARCH,
		Interpreter: interpreter(in[0].Interpreter), Settings: settings.Public(),
	}
	if c != nil && c.backend != nil {
		id.Backend = c.backend.Facts.Name
		if c.backend.Facts.Isolation.Rank() > sdk.IsolationNamespace.Rank() {
			id.Interpreter = "" // not the host's: it is what the configuration makes it
		}
		if c.config != nil {
			id.Config = c.config.Redacted
		}
	}
	return id, settings, nil
}

// interpreter identifies a program of the host that sandboxes on the host's own files will use: where it is, how big,
// and of when.
func interpreter(name string) string {
	for _, dir := range strings.Split(defaultPath, ":") {
		p, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return fmt.Sprintf("%s %d %d", p, st.Size(), st.ModTime().Unix())
		}
	}
	return name
}

// install installs into dir by way of a sandbox, and returns the installer.
func (j *job) install(ctx context.Context, id deps.Identity, settings deps.Settings, dir string) (string, error) {
	input, env, err := installInput(settings, id.Lock)
	if err != nil {
		return "", err
	}
	spec := sdk.Spec{
		Limits: sdk.Limits{Timeout: installTimeout}, Network: sdk.NetworkFull,
		Workspace: sdk.Workspace{Mode: sdk.WorkspacePrivate},
	}
	if slices.Contains(j.chosen.backend.Facts.Networks, sdk.NetworkFiltered) {
		spec.Rules = j.d.Network.Rules()
		from := id.Packages
		if id.Lock != nil {
			from = id.Lock.URLs
		}
		spec.Rules.Allow = slices.Concat(spec.Rules.Allow, settings.Reach(ctx, id.Language, from))
		if j.d.Network.Mode != sdk.NetworkFull {
			spec.Network = sdk.NetworkFiltered
		}
	}
	if j.chosen.config != nil && len(j.chosen.config.Value) > 0 {
		spec.Config = j.chosen.config.Value
	}
	if input != nil {
		defer input.Close()
		if spec.Input, err = input.Sub("ca"); err != nil {
			return "", err
		}
		if id.Lock != nil {
			for name, text := range id.Lock.Files {
				if err := writeFile(filepath.Join(spec.Input, name), 0o644, strings.NewReader(text)); err != nil {
					return "", err
				}
			}
		}
		for name, from := range settings.Bundles {
			if _, ok := env[name]; ok {
				if err := copyBundle(from, filepath.Join(spec.Input, deps.BundleName(name))); err != nil {
					return "", err
				}
			}
		}
	}
	p, err := j.create(ctx, j.depsID(), spec, false)
	if err != nil {
		return "", fmt.Errorf("make a sandbox to install dependencies in: %w", err)
	}
	defer func() {
		after, cancel := j.afterwards(ctx)
		defer cancel()
		j.remove(after, p, p.Handle())
	}()
	ready := p.Ready()
	for name, file := range env {
		env[name] = path.Join(ready.Input, file)
	}
	maps.Copy(env, settings.Env)

	for _, in := range deps.For(id.Language) {
		version, x, err := j.installer(ctx, p, in.Version, in, env)
		if err != nil {
			return "", err
		}
		if x.NotStarted || x.Code != 0 {
			continue
		}
		line, _, _ := strings.Cut(strings.TrimSpace(version), "\n")
		if f := strings.Fields(line); len(f) > 1 && f[0] == in.Name {
			line = f[1]
		}
		said := in.Name + " " + line
		packages := strings.Join(id.Packages, " ")
		if id.Lock != nil {
			packages = fmt.Sprintf("the %d packages of the lock file", len(id.Packages))
		}
		j.progress(fmt.Sprintf("dependencies: %s install %s", in.Name, packages), 0, 0)
		target := path.Join(ready.Output, "deps")
		var before time.Time
		if id.MinAge > 0 {
			before = time.Now().Add(-time.Duration(id.MinAge))
		}
		argv := in.Command(target, id.Packages, before)
		if id.Lock != nil {
			argv = in.Locked(target, ready.Input)
		}
		out, x, err := j.installer(ctx, p, argv, in, env)
		if err != nil {
			return "", err
		}
		if x.Cause != sdk.CauseExited || x.Code != 0 || x.NotStarted {
			return "", &result.Failure{
				Phase:   "dependencies",
				Summary: fmt.Sprintf("%s could not install %s (%s)", in.Name, packages, exitText(x)),
				Detail:  strings.TrimSpace(settings.Redact(out)),
				Fix:     cmp.Or(allowFix(x.Traffic), deps.Fix(id.Language, out)),
			}
		}
		after, cancel := j.afterwards(ctx)
		defer cancel()
		return said, j.takeDeps(after, p, target, dir)
	}
	names := []string{}
	for _, in := range deps.For(id.Language) {
		names = append(names, in.Name)
	}
	return "", &result.Failure{
		Phase:   "dependencies",
		Summary: fmt.Sprintf("the sandbox has no installer for %s", id.Language),
		Fix:     "install " + strings.Join(names, " or ") + " where the sandbox sees it",
	}
}

// installer runs one command of an installer and returns the end of what it said.
func (j *job) installer(ctx context.Context, p *place, argv []string, in deps.Installer,
	env map[string]string) (string, *sdk.Exit, error) {
	all := maps.Clone(env)
	for k, v := range in.Env {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(env)), func(set string) bool { return strings.EqualFold(set, k) }) {
			all[k] = v
		}
	}
	all["HOME"] = "/tmp"
	said := &keep.Tail{Max: installTail}
	j.event(store.EventExecStart, map[string]any{"argv": argv, "sandbox": p.ID(), "env": envNames(all)})
	x, err := p.Exec(ctx, &client.Command{
		Argv: argv, Env: all, Dir: p.Ready().Workspace, Stdout: said, Stderr: said, Timeout: installTimeout,
	})
	if err != nil {
		return "", nil, err
	}
	if x.Cause == sdk.CauseCancelled {
		return "", nil, sdk.ErrCancelled
	}
	for _, t := range x.Traffic {
		j.decided(bounded(t))
	}
	j.event(store.EventExecEnd, map[string]any{"sandbox": p.ID(), "cause": x.Cause, "exit_code": x.Code,
		"evidence": x.Evidence})
	end, dropped := said.Bytes()
	return result.Text(end, dropped), x, nil
}

// allowFix says how the first denied destination of an installer is allowed, or "".
func allowFix(traffic []sdk.Traffic) string {
	for _, t := range traffic {
		if text, fix := network.Denial(t); !t.Allowed && fix != "" {
			return text + "; to allow it: " + fix
		}
	}
	return ""
}

// takeDeps copies what was installed out of the sandbox. It is as hostile as any output.
func (j *job) takeDeps(ctx context.Context, p *place, from, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = piped.Join(func(w io.Writer) error { return p.Get(ctx, from, sdk.FormatTar, w) }, func(r io.Reader) error {
		_, err := tree.Unpack(ctx, r, root, tree.Caps{})
		return err
	})
	if err != nil {
		return fmt.Errorf("take the installed dependencies out of the sandbox: %w", err)
	}
	return nil
}

// installInput makes a directory for the user's certificates and the lock file, and the variables with the names of the
// certificates in it. A file that is not there is left out, as the programs that would use it do.
func installInput(s deps.Settings, lock *deps.Lock) (*store.RuntimeDir, map[string]string, error) {
	env := map[string]string{}
	for name, from := range s.Bundles {
		if st, err := os.Stat(from); err == nil && st.Mode().IsRegular() {
			env[name] = deps.BundleName(name)
		}
	}
	if len(env) == 0 && lock == nil {
		return nil, env, nil
	}
	dir, err := store.NewRuntimeDir()
	return dir, env, err
}

func copyBundle(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return writeFile(to, 0o644, io.LimitReader(f, maxBundle))
}

func exitText(x *sdk.Exit) string {
	switch {
	case x.Cause == sdk.CauseExited:
		return fmt.Sprintf("exit code %d", x.Code)
	case x.Signal != "":
		return string(x.Cause) + ", " + x.Signal
	}
	return string(x.Cause)
}
