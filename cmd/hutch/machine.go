package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/cmd/hutch/internal/pages"
	"github.com/hutch-run/hutch/host/reference"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
)

type gcCmd struct {
	OlderThan duration `placeholder:"720h" help:"Remove ended runs, their logs and outputs, that began longer ago: 30d, 720h."`
	KeepRuns  *int     `placeholder:"N" help:"Leave the newest N, and remove the other ended runs, or those that --older-than names."`
	Deps      duration `placeholder:"720h" help:"Remove installed dependencies that were not used for so long."`
	DryRun    bool     `help:"Say what would go, and remove nothing."`
	Output    string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line."`
}

// Help is the text below the synopsis.
func (*gcCmd) Help() string {
	return `Without flags, finishes what processes left that were killed: sandboxes, cgroups, mounts, sockets and
temporary directories. Running runs, persistent sandboxes and the records of runs stay.

    hutch gc
    hutch gc --older-than 30d --keep-runs 100 --dry-run`
}

func (c *gcCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	olderThan, keep := time.Duration(c.OlderThan), 0
	if c.KeepRuns != nil {
		if keep = *c.KeepRuns; keep < 0 {
			return errors.New("--keep-runs cannot be negative")
		}
		if keep == 0 && olderThan == 0 {
			olderThan = 1 // every one that has ended
		}
	}
	items, err := s.Store().GC(ctx, store.GCOptions{
		RunsOlderThan: olderThan, KeepRuns: keep, DepsUnused: time.Duration(c.Deps),
		DryRun: c.DryRun, Destroy: s.Destroy, Find: s.Lost,
	})
	var freed int64
	failed, removed, others := 0, 0, 0
	if !c.DryRun {
		ledger := workspace.Ledger(s.Store())
		failed += recovered(ctx, u, ledger)
		err = errors.Join(err, ledger.Prune(ctx, time.Now()))
	}
	for _, i := range items {
		freed += i.Bytes
		switch {
		case i.Error != "":
			failed++
		case i.Kind == store.GCRuntimeDir:
			others++
		default:
			removed++
		}
		if c.Output == "json" {
			if err := json.NewEncoder(u.out).Encode(i); err != nil {
				return err
			}
			continue
		}
		line := i.Kind + " " + i.Name
		if i.Bytes > 0 {
			line += " (" + humanize.IBytes(uint64(i.Bytes)) + ")"
		}
		if i.Error != "" {
			line += ": " + i.Error
		}
		if err := u.line("%s", line); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	verb := "removed"
	if c.DryRun {
		verb = "would remove"
	}
	said := fmt.Sprintf("%s %s, %s", verb, count(removed, "item"), humanize.IBytes(uint64(freed)))
	if others > 0 { // they are of no store, and those of every store lie beside each other
		said += fmt.Sprintf(", and %d that dead processes of hutch left for their sockets", others)
	}
	u.note("%s", said)
	if failed > 0 {
		return fmt.Errorf("could not remove %s; the reasons are above", count(failed, "item"))
	}
	return nil
}

type versionCmd struct {
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text or json."`
}

// versions is the JSON answer of version.
type versions struct {
	Hutch    string           `json:"hutch"`
	Go       string           `json:"go"`
	Platform string           `json:"platform"`
	Protocol int              `json:"protocol"`
	Backends []backendVersion `json:"backends"`
}

type backendVersion struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path"`
	Error   string `json:"error,omitempty"`
}

func (c *versionCmd) Run(ctx context.Context, u *ui) error {
	v := versions{Hutch: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Protocol: session.Protocol, Backends: []backendVersion{}}
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	for _, l := range describe(ctx, pool, pool.Names()) {
		v.Backends = append(v.Backends, backendVersion{l.Name, l.Version, l.Path, l.Error})
	}
	if c.Output == "json" {
		return u.json(v)
	}
	rows := [][]string{{"hutch", v.Hutch}, {"go", v.Go}, {"platform", v.Platform}, {"protocol", fmt.Sprint(v.Protocol)}}
	for _, b := range v.Backends {
		if b.Error != "" {
			b.Version = b.Error
		}
		rows = append(rows, []string{"backend " + b.Name, b.Version, b.Path})
	}
	return u.table(rows)
}

type completionCmd struct {
	Shell string `arg:"" name:"shell" help:"bash, zsh or fish."`
}

// Help is the text below the synopsis.
func (*completionCmd) Help() string {
	return `Load it where you are, or keep it where the shell looks for it:

    source <(hutch completion bash)
    hutch completion zsh > "${fpath[1]}/_hutch"
    hutch completion fish > ~/.config/fish/completions/hutch.fish`
}

func (c *completionCmd) Run(u *ui, k *kong.Kong) error {
	return pages.Completion(u.out, k.Model.Node, c.Shell)
}

type docsCmd struct {
	Man docsManCmd `cmd:"" help:"Print the manual page, or write one for each command below a directory."`
	All docsAllCmd `cmd:"" help:"Write all reference pages below a directory."`
}

type docsManCmd struct {
	Dir string `arg:"" optional:"" help:"Directory to write the pages to, such as /usr/local/share/man/man1." complete:"dir"`
}

func (c *docsManCmd) Run(u *ui, k *kong.Kong) error {
	all := pages.Man(k.Model.Node)
	if c.Dir == "" {
		return u.line("%s", strings.TrimSuffix(all[k.Model.Name], "\n"))
	}
	for name, page := range all {
		if err := writePage(c.Dir, name+".1", []byte(page)); err != nil {
			return err
		}
	}
	return nil
}

type docsAllCmd struct {
	Dir string `arg:"" help:"Directory to write to."`
}

// Run writes the pages of the command line and of every backend that is installed.
func (c *docsAllCmd) Run(ctx context.Context, u *ui, k *kong.Kong) error {
	var page bytes.Buffer
	if err := pages.Markdown(&page, k.Model.Node); err != nil {
		return err
	}
	if err := writePage(c.Dir, "cli.md", page.Bytes()); err != nil {
		return err
	}
	page.Reset()
	if err := writeHabits(&page); err != nil {
		return err
	}
	if err := writePage(c.Dir, "habits.md", page.Bytes()); err != nil {
		return err
	}
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	for _, name := range pool.Names() {
		b, err := pool.Get(ctx, name)
		if err != nil {
			return err
		}
		page.Reset()
		if err := reference.Backend(&page, &b.Facts); err != nil {
			return err
		}
		if err := writePage(c.Dir, filepath.Join("backends", name+".md"), page.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func writePage(dir, name string, page []byte) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, page, 0o644)
}
