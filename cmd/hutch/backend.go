package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/backendcheck"
	"github.com/hutch-run/hutch/host/doctor"
	"github.com/hutch-run/hutch/host/reference"
	"github.com/hutch-run/hutch/host/scaffold"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/termsafe"
)

type backendCmd struct {
	List    backendListCmd    `cmd:"" help:"List the backends that are installed."`
	Install backendInstallCmd `cmd:"" help:"Install one backend for this user."`
	Remove  backendRemoveCmd  `cmd:"" help:"Remove a backend that was installed."`
	Test    backendTestCmd    `cmd:"" help:"Run the conformance suite against a backend."`
	New     backendNewCmd     `cmd:"" help:"Write a complete project for a new backend."`
	Pack    backendPackCmd    `cmd:"" help:"Make a release of a backend."`
	Publish backendPublishCmd `cmd:"" help:"Bring releases into a registry."`
	Docs    backendDocsCmd    `cmd:"" help:"Print what a backend is, and what its block in a run file may hold."`
}

type backendListCmd struct {
	Files  []string `arg:"" optional:"" name:"file" help:"Run files whose lock files count." complete:"hcl"`
	Quiet  bool     `short:"q" help:"Print only the names, without asking the backends anything."`
	Output string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line."`
}

// Help is the text below the synopsis.
func (*backendListCmd) Help() string {
	return `Backends are programs called hutch-backend-NAME. The first of these that has one is taken: backend_paths in
your configuration; the files and directories of HUTCH_BACKEND_PATH, separated by colons; what the lock file beside
the run files names, as hutch init installed it; what hutch backend install installed; ../libexec/hutch beside the
hutch binary. Nowhere else is looked: not in PATH, and not in the current directory. A program that others may write,
or that lies in a directory that others may write, is passed over.

With run files, the backends are listed that those would use.`
}

// listed is one line of `backend list`.
type listed struct {
	Name      string `json:"name"`
	Version   string `json:"version,omitempty"`
	Isolation string `json:"isolation,omitempty"`
	Summary   string `json:"summary,omitempty"`
	Path      string `json:"path,omitempty"`
	SHA256    string `json:"sha256,omitempty"` // of the program
	Protocol  int    `json:"protocol,omitempty"`
	From      string `json:"from,omitempty"`   // configuration, HUTCH_BACKEND_PATH, lock, installed or bundled
	Lock      string `json:"lock,omitempty"`   // path of the lock file
	Source    string `json:"source,omitempty"` // as it is locked
	SignedBy  string `json:"signed_by,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (c *backendListCmd) Run(ctx context.Context, u *ui) error {
	for _, f := range c.Files {
		if _, err := os.Stat(f); errors.Is(err, fs.ErrNotExist) {
			return hint(fmt.Errorf("there is no run file %q", f),
				"hutch backend list alone lists every backend, with a run file those that it would use")
		}
	}
	s, done, err := openFor(u, c.Files)
	if err != nil {
		return err
	}
	defer done()
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	names := pool.Names()
	if c.Quiet {
		return printEach(u, "text", names, func(n string) string { return n })
	}
	in, err := installer(s, u)
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "VERSION", "PROTOCOL", "ISOLATION", "FROM", "SOURCE", "DIGEST", "SIGNED BY", "SUMMARY"}}
	for _, l := range describe(ctx, pool, names) {
		if l.Lock != "" {
			l.SignedBy = in.Trust.SignedBy(l.Path, l.Source, filepath.Dir(l.Lock))
		}
		if l.Lock == s.Store().Paths().InstalledLock() {
			l.From = "installed"
		}
		if c.Output == "json" {
			if err := json.NewEncoder(u.out).Encode(l); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, l.row())
	}
	if c.Output == "json" {
		return nil
	}
	if len(names) == 0 {
		return hint(errors.New("no backend is installed"),
			"make build puts those of this project into libexec/hutch; hutch init and hutch backend install bring others; "+
				"HUTCH_BACKEND_PATH names further directories")
	}
	return u.table(rows)
}

// row is a line of the table.
func (l listed) row() []string {
	if l.Error != "" {
		return []string{l.Name, "-", "-", "-", "-", "-", "-", "-", "does not start: " + l.Error}
	}
	digest := l.SHA256
	if len(digest) > 12 {
		digest = digest[:12]
	}
	return []string{l.Name, l.Version, fmt.Sprint(l.Protocol), l.Isolation, l.From, cmp.Or(l.Source, "-"), digest,
		cmp.Or(l.SignedBy, "-"), l.Summary}
}

// describe starts backends side by side and asks what they are.
func describe(ctx context.Context, pool *backend.Pool, names []string) []listed {
	out := make([]listed, len(names))
	var wg sync.WaitGroup
	for i, n := range names {
		wg.Go(func() {
			out[i].Name = n
			b, err := pool.Get(ctx, n)
			if err != nil {
				out[i].Error = err.Error()
				return
			}
			f := b.Facts
			out[i] = listed{Name: n, Version: f.Version, Isolation: string(f.Isolation), Summary: f.Summary, Path: b.Path,
				SHA256: b.SHA256, Protocol: session.Protocol, From: string(b.Origin.From)}
			if sel := b.Origin.Selection; sel != nil {
				out[i].Lock, out[i].Source = sel.Lock, sel.Source
			}
		})
	}
	wg.Wait()
	return out
}

type backendTestCmd struct {
	Backend string        `arg:"" name:"backend" help:"Name of an installed backend, or path to a binary." complete:"file"`
	Config  string        `placeholder:"FILE" help:"What the backend's block holds during the tests, as .hcl or .json." complete:"file"`
	Only    string        `placeholder:"REGEXP" help:"Run only the checks whose id matches."`
	Timeout time.Duration `placeholder:"DURATION" default:"2m" help:"How long one check may take (default 2m). One that hangs fails and names the call that the backend had not answered."`
	Output  string        `short:"o" enum:"text,json,junit" default:"text" placeholder:"FORMAT" help:"text (TAP), json or junit."`
	Quiet   bool          `short:"q" help:"Print only the report, not each check as it ends."`
}

// Help is the text below the synopsis.
func (*backendTestCmd) Help() string {
	return `Starts the plugin as a host would, in whatever language it is written, and checks everything that it claims:
the handshake, the life of sandboxes, streams, signals, limits, files, and what is left after it was killed. A check
is skipped only when the backend does not claim what it is about, or says of a limit why this machine cannot hold it.
Exit code 1 means that a check failed.

    hutch backend test bwrap
    hutch backend test ./hutch-backend-acme --config testdata/block.hcl --only '^exec/'`
}

func (c *backendTestCmd) Run(ctx context.Context, u *ui) error {
	o := backendcheck.Options{Path: c.Backend, Config: c.Config, Out: u.out, CheckTime: c.Timeout}
	switch c.Output {
	case "json":
		o.Format = "json"
	case "junit":
		o.Format = "junit"
	default:
		o.Format = "text"
	}
	if c.Only != "" {
		re, err := regexp.Compile(c.Only)
		if err != nil {
			return fmt.Errorf("--only: %w", err)
		}
		o.Only = re
	}
	if !strings.ContainsRune(c.Backend, os.PathSeparator) {
		path, err := pathOf(ctx, u, c.Backend)
		if err != nil {
			return err
		}
		o.Path = path
	}
	if !c.Quiet && (c.Output != "text" || !u.outTTY) && u.errTTY {
		o.Progress = u.err
	}
	report, err := backendcheck.Run(ctx, o)
	if err != nil {
		return err
	}
	u.note("%d passed, %d failed, %d skipped", report.Passed, report.Failed, report.Skipped)
	if !report.OK() {
		return exit(exitNo)
	}
	return nil
}

// pathOf finds the binary of an installed backend.
func pathOf(ctx context.Context, u *ui, name string) (string, error) {
	s, done, err := open(u)
	if err != nil {
		return "", err
	}
	defer done()
	b, err := s.Find(ctx, name)
	if err != nil {
		return "", err
	}
	return b.Path, nil
}

type backendNewCmd struct {
	Name    string `arg:"" help:"Name of the backend: a to z, 0 to 9 and dashes."`
	Dir     string `placeholder:"DIR" help:"Where to write the project (default ./hutch-backend-NAME)." complete:"dir"`
	Module  string `placeholder:"PATH" help:"Go module path (default example.com/hutch-backend-NAME)."`
	Replace string `placeholder:"DIR" help:"Directory with hutch's own source, to build against it instead of a release." complete:"dir"`
}

// Help is the text below the synopsis.
func (*backendNewCmd) Help() string {
	return `Writes a project that builds, runs and passes the conformance suite: a plugin, a test, a Makefile, a release
configuration. docs/writing-a-backend.md leads on from there.

    hutch backend new acme --module github.com/me/hutch-backend-acme`
}

func (c *backendNewCmd) Run(u *ui) error {
	o := scaffold.Options{Name: c.Name, Module: c.Module, Dir: c.Dir, Replace: c.Replace}
	// A tag of the module, and not a commit after one.
	if released, _ := regexp.MatchString(`^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)[.0-9]*)?$`, version); released {
		o.Version = version
	}
	files, err := scaffold.New(o)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := u.line("%s", f); err != nil {
			return err
		}
	}
	dir := c.Dir
	if dir == "" {
		dir = "hutch-backend-" + c.Name
	}
	if o.Version == "" && c.Replace == "" {
		u.note("this hutch is no release, so go cannot fetch the package for it: go mod edit -replace "+
			"github.com/hutch-run/hutch=DIR, with the directory of its source, in %s", termsafe.ShellWord(dir))
	}
	u.note("next: cd %s && make test", termsafe.ShellWord(dir))
	return nil
}

type backendDocsCmd struct {
	Backend string `arg:"" name:"backend" help:"Name of an installed backend, or path to a binary." complete:"backend"`
	Output  string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text (Markdown) or json."`
}

func (c *backendDocsCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	b, err := s.Find(ctx, c.Backend)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return u.json(b.Facts)
	}
	return reference.Backend(u.escaped(), &b.Facts)
}

type doctorCmd struct {
	Backends []string `arg:"" optional:"" name:"backend" help:"Backends to check (default: all that are installed)." complete:"backend"`
	Output   string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text or json."`
}

// Help is the text below the synopsis.
func (*doctorCmd) Help() string {
	return `Tries out, by doing, what each backend needs of this machine, and says for everything that is missing how to
mend it. Exit code 1 means that no sandbox can be made here, or none by one of the backends that were named.`
}

func (c *doctorCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	report := doctor.Examine(ctx, s.Store(), only{pool, c.Backends})
	if err := context.Cause(ctx); err != nil {
		return err
	}
	able := report.Able()
	if c.Output == "json" {
		err = u.json(report)
	} else {
		err = showReport(u, report)
	}
	for _, b := range report.Backends {
		able = able && (b.Able || len(c.Backends) == 0)
	}
	if err == nil && !able {
		err = exit(exitNo)
	}
	return err
}

// showReport writes what doctor found as text.
func showReport(u *ui, r *doctor.Report) error {
	show := func(title string, findings []doctor.Finding) error {
		rows := [][]string{}
		said := map[string]string{} // which finding has said a fix
		for _, f := range findings {
			rows = append(rows, []string{"  " + f.Status, f.Name, f.Detail})
			switch first, again := said[f.Fix]; {
			case f.Fix == "":
			case again:
				rows = append(rows, []string{"", "", "fix: the same as for " + first})
			default:
				said[f.Fix] = f.Name
				rows = append(rows, []string{"", "", "fix: " + f.Fix})
			}
		}
		if err := u.line("%s", title); err != nil {
			return err
		}
		return u.table(rows)
	}
	if err := show("hutch", r.Store); err != nil {
		return err
	}
	for _, b := range r.Backends {
		title := "backend " + b.Name
		if b.Version != "" {
			title += " " + b.Version + ", isolation " + b.Isolation
		}
		if !b.Able {
			title += ": not able to run here"
		}
		if err := show(title, b.Findings); err != nil {
			return err
		}
	}
	return nil
}

// only is a pool that knows no names but those that were asked for.
type only struct {
	*backend.Pool
	names []string
}

func (o only) Names() []string {
	if len(o.names) > 0 {
		return o.names
	}
	return o.Pool.Names()
}
