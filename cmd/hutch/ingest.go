package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/host/agent/ingest"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

type ingestCmd struct {
	Answer string `arg:"" name:"file" help:"File with the answer; - is stdin." complete:"file"`

	Format string `enum:",json,markdown,diff,v4a,search-replace,xml,txtar" default:"" placeholder:"FORMAT" help:"How the answer hands over files: json, markdown, diff, v4a, search-replace, xml or txtar (default: found out)."`
	Output string `group:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object, and with --run the result after it."`

	RunNow       bool     `group:"ingest-run" name:"run" help:"Execute the run at once."`
	Dir          string   `group:"ingest-run" placeholder:"DIR" help:"Where the code and the run file go: a directory that is missing or empty (default: one that hutch keeps)." complete:"dir"`
	Name         string   `group:"ingest-run" placeholder:"NAME" help:"Name of the run (default: that of the file)."`
	Entrypoint   string   `group:"ingest-run" placeholder:"FILE" help:"The file that is run, whatever the answer says."`
	Language     string   `group:"ingest-run" placeholder:"NAME" help:"Its language, whatever the answer says."`
	Dependency   []string `group:"ingest-run" sep:"none" placeholder:"PACKAGE" help:"A package to install besides those of the answer. Repeatable."`
	Backend      string   `group:"ingest-run" placeholder:"NAME" help:"Backend of the run (default: the one of the configuration, else bwrap)." complete:"backend"`
	networkFlags `group:"ingest-run"`

	runfile.Limits `group:"limits"`

	Workspace string `group:"ingest-apply" placeholder:"DIR" help:"Apply the answer, a patch or whole files, to this directory instead of making a run of it: all of it or nothing." complete:"dir"`
	DryRun    bool   `group:"ingest-apply" help:"Say what would be done to the directory, and do nothing."`
	Diff      bool   `group:"ingest-apply" help:"Print what would be done to the directory as a patch, and do nothing."`

	allowFlags
}

// Help is the text below the synopsis.
func (*ingestCmd) Help() string {
	return `Takes what a model answered and makes a run of it: its files below code/, a run file beside it, whose path is
printed. The answer may be JSON ({"files":[{"path":…,"content":…}],"entrypoint":…}, {"code":…},
{"path":"content"}), Markdown with named blocks, XML, txtar, or a patch that only adds files; docs/ingest.md has all
spellings.

With --workspace, the answer is applied to a directory: unified and git diffs, V4A patches, SEARCH/REPLACE blocks, or
whole files. It is one transaction, under the rules of hutch apply, and hutch apply --undo takes it back.

An answer that cannot be used ends with exit code 1, and says for each problem where it is and what to do, so that a
model can mend it; -o json has the same as data. With --run the exit code is that of hutch run.

    hutch ingest answer.md
    hutch run $(hutch ingest answer.md)
    llm … | hutch ingest - --run --timeout 30s -m 512m
    hutch ingest patch.diff --workspace . --diff
    hutch ingest patch.diff --workspace .`
}

func (c *ingestCmd) Run(ctx context.Context, u *ui, call *call) error {
	runFlags := c.RunNow || c.Dir != "" || c.Name != "" || c.Entrypoint != "" || c.Language != "" ||
		len(c.Dependency) > 0 || c.Backend != "" || c.Network != "" || len(c.AllowHost) > 0 || c.Limits != (runfile.Limits{})
	switch {
	case c.Workspace != "" && runFlags:
		return hint(errors.New("--workspace applies the answer to a directory, and makes no run of it"),
			"apply it first, and then use hutch run --workspace %s", c.Workspace)
	case c.Workspace == "" && (c.DryRun || c.Diff):
		return errors.New("--dry-run and --diff go with --workspace")
	case c.DryRun && c.Diff:
		return errors.New("--dry-run and --diff exclude each other")
	}
	raw, err := c.read(u)
	if err != nil {
		return err
	}
	a, err := ingest.Parse(raw, ingest.Format(c.Format))
	if err != nil {
		return c.refuse(u, err)
	}
	if c.Workspace != "" {
		return c.apply(ctx, u, a)
	}
	return c.save(ctx, u, call, a, raw)
}

// read reads the answer.
func (c *ingestCmd) read(u *ui) ([]byte, error) {
	in := io.Reader(u.in)
	if c.Answer != "-" {
		f, err := os.Open(c.Answer)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, ingest.MaxAnswer+1))
	if err == nil && len(b) > ingest.MaxAnswer {
		err = fmt.Errorf("the answer has more than %s", units.FormatSize(ingest.MaxAnswer))
	}
	return b, err
}

// ingested is the JSON answer.
type ingested struct {
	Schema       string           `json:"schema"` // hutch.ingested/v1
	OK           bool             `json:"ok"`
	Format       ingest.Format    `json:"format,omitempty"`
	Problems     []ingest.Problem `json:"problems,omitempty"` // why it is not ok
	Notes        []string         `json:"notes,omitempty"`
	Entrypoint   string           `json:"entrypoint,omitempty"`
	Language     string           `json:"language,omitempty"`
	Dependencies []string         `json:"dependencies,omitempty"`
	Dir          string           `json:"dir,omitempty"`
	RunFile      string           `json:"run_file,omitempty"`
	Files        []ingestedFile   `json:"files,omitempty"`
}

type ingestedFile struct {
	Path   string `json:"path"` // below code/
	Size   int    `json:"size"`
	Mode   string `json:"mode"`
	SHA256 string `json:"sha256"`
}

const ingestedSchema = "hutch.ingested/v1"

// refuse says what is wrong with an answer, in full.
func (c *ingestCmd) refuse(u *ui, err error) error {
	var e *ingest.Error
	if !errors.As(err, &e) {
		return err
	}
	if c.Output == "json" {
		if err := u.json(ingested{Schema: ingestedSchema, Format: e.Format, Problems: e.Problems}); err != nil {
			return err
		}
		return exit(e.ExitCode())
	}
	for i := range e.Problems {
		u.note("%s", e.Problems[i].Error())
		if h := e.Problems[i].Hint; h != "" {
			u.note("hint: %s", h)
		}
	}
	if e.More > 0 {
		u.note("and %s more", count(e.More, "problem"))
	}
	return exit(e.ExitCode())
}

// save makes the run, and executes it where that is wanted.
func (c *ingestCmd) save(ctx context.Context, u *ui, call *call, a *ingest.Answer, raw []byte) error {
	program, err := a.Program(ingest.Program{Entrypoint: c.Entrypoint, Language: c.Language, Dependencies: c.Dependency})
	if err != nil {
		refused := c.refuse(u, err)
		// a hint for the answer's author does not help with a patch
		if len(a.Changes) > 0 && len(a.Files) == 0 && c.Output != "json" {
			u.note("hint: --workspace DIR applies a patch to a directory")
		}
		return refused
	}
	net, err := c.network()
	if err != nil {
		return err
	}
	run := ingest.Run{Name: c.Name, Program: program, Backend: c.Backend, Network: net, Limits: c.Limits}
	if run.Name == "" {
		run.Name = ingest.RunName(c.Answer)
	}
	dir, err := c.place(u, &run)
	if err != nil {
		return err
	}
	file, err := ingest.Save(dir, a, run, raw, c.policy(false).Allow)
	if err != nil {
		return hintAllow(err)
	}
	if _, ds := runfile.Load([]string{file}, runfile.Options{}); ds.HasErrors() {
		_ = os.RemoveAll(filepath.Dir(file)) // it was made just now
		return ds.Err()
	}
	for _, n := range a.Notes {
		u.note("%s", n)
	}
	if c.Output == "json" {
		doc := ingested{Schema: ingestedSchema, OK: true, Format: a.Format, Notes: a.Notes, Entrypoint: program.Entrypoint,
			Language:     program.Language,
			Dependencies: program.Dependencies, Dir: filepath.Dir(file), RunFile: file}
		for _, f := range a.Files {
			sum := sha256.Sum256(f.Content)
			doc.Files = append(doc.Files, ingestedFile{f.Path, len(f.Content), fmt.Sprintf("%04o", f.Mode),
				hex.EncodeToString(sum[:])})
		}
		if err := u.json(doc); err != nil {
			return err
		}
	} else {
		u.note("%s from %s, entrypoint %s: %s", count(len(a.Files), "file"), a.Format, termsafe.Line(program.Entrypoint),
			file)
	}
	if c.RunNow {
		return (&runCmd{runFlags: runFlags{Args: []string{file}}, Output: c.Output,
			applyFlags: applyFlags{Apply: "never"}}).Run(ctx, u, call)
	}
	if c.Output == "json" {
		return nil
	}
	return u.line("%s", file)
}

// place is the directory of the run, and completes the run with what the configuration says.
func (c *ingestCmd) place(u *ui, run *ingest.Run) (string, error) {
	s, done, err := open(u)
	if err != nil {
		return "", err
	}
	defer done()
	if run.Backend == "" {
		conf, err := s.Config()
		if err != nil {
			return "", err
		}
		run.Backend = conf.Backend
	}
	if c.Dir != "" {
		return c.Dir, nil
	}
	if err := os.MkdirAll(s.Store().Paths().Ingested(), 0o700); err != nil {
		return "", err
	}
	return s.Store().Paths().IngestedRun(s.Store().NewID()), nil
}

// apply brings the answer to a directory.
func (c *ingestCmd) apply(ctx context.Context, u *ui, a *ingest.Answer) error {
	st, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	ledger := workspace.Ledger(st)
	recovered(ctx, u, ledger)
	id := st.NewID()
	p, err := ingest.Propose(ctx, a, c.Workspace, "ingest-"+id[strings.LastIndex(id, "-")+1:], id)
	if err != nil {
		return c.refuse(u, err)
	}
	for _, n := range append(a.Notes, p.Notes...) {
		u.note("%s", n)
	}
	r, err := review.Open(ctx, p.Subject(), review.Options{Keep: ledger.Dir()})
	if err != nil {
		return err
	}
	defer r.Close()
	if c.Diff {
		if c.Output == "json" {
			d, err := r.Document(ctx)
			if err != nil {
				return err
			}
			return u.json(d)
		}
		return r.Unified(ctx, u.out, review.Style{Color: colorful("auto", u.outTTY), Terminal: u.outTTY, Width: u.width})
	}
	return applyPicks(ctx, u, applying{Review: &workspace.Review{Review: r}, answer: true, picks: r.All(),
		policy: c.policy(false), ledger: ledger, dryRun: c.DryRun, json: c.Output == "json"})
}
