// Package replay runs a recorded run again and explains what differs.
//
// What is run is what the record has: the definition as it was evaluated, the declared files below code/, and the block
// of the backend as it was checked, all of it verified against the event chain first. What the record lacks, because it
// was sensitive, has to be given again. The workspace is the host's directory as it is now; whether anything in it was
// touched since is shown.
package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Options say how a run is repeated.
type Options struct {
	// Backend is where to run it; "" is where it ran.
	Backend string
	// Env gives values of the environment that the record lacks.
	Env map[string]string
	// RunFile evaluates the run file of the record as it is now, for what the record lacks; nil looks at none.
	RunFile func(path string) (*runfile.Config, error)
	// Shared allows to run again in a workspace in shared mode, in which the run writes to the host's directory.
	Shared bool
	// Network is what it reaches besides; see [network.Network.With].
	Network network.Network
}

// RefusedError says why a run is not repeated, and what to do.
type RefusedError struct {
	Run    string
	Reason string
	Fix    string // it may be empty
}

// Error is the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("run %s cannot be repeated: %s", e.Run, e.Reason)
}

// Replay is a recorded run, ready to be run again.
type Replay struct {
	// Definition is what will be run.
	Definition *runfile.Definition

	store *store.Store
	rec   *store.Record
	was   *result.Result
	hutch string // version that recorded it
	about []Circumstance
	place Workspace
}

// Prepare checks a run's record and makes a definition of it. An error is a [*RefusedError] when the run cannot be
// repeated.
func Prepare(ctx context.Context, s *store.Store, id string, o Options) (*Replay, error) {
	rec, err := s.Load(id)
	if err != nil {
		return nil, err
	}
	r := &Replay{store: s, rec: rec}
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	recorded, err := r.recorded()
	if err != nil {
		return nil, err
	}
	d, err := runfile.Recall(recorded)
	if err != nil {
		return nil, r.refuse("", "%v", err)
	}
	for name, value := range o.Env {
		if !d.SetEnv(name, value) {
			return nil, r.refuse("leave it out: the record has what is needed of the environment",
				"%s is given, and the record does not lack it", name)
		}
	}
	if err := r.complete(d, o); err != nil {
		return nil, err
	}
	if was := d.Network; o.Network.Mode != "" {
		d.Network = was.With(o.Network)
		r.tell("network", was.String(), d.Network.String())
	}
	if err := r.workspace(ctx, d.Definition, o); err != nil {
		return nil, err
	}
	for _, h := range d.Home {
		if h.Source == "" {
			continue
		}
		if _, err := os.Stat(h.Source); err != nil {
			return nil, r.refuse("", "what it had at %s of its home directory is gone: %v", h.Path, err)
		}
		r.tell("home "+h.Path, "", "read again from "+h.Source)
	}
	d.Parent = id
	r.Definition = d.Definition
	return r, nil
}

func (r *Replay) refuse(fix, format string, args ...any) error {
	return &RefusedError{Run: r.rec.ID, Reason: fmt.Sprintf(format, args...), Fix: fix}
}

// check refuses what is no run that can be repeated, and a record that was changed.
func (r *Replay) check(ctx context.Context) error {
	rec := r.rec
	switch {
	case rec.State == store.StateDamaged:
		return r.refuse("hutch audit verify "+rec.ID+" says more", "its record cannot be read: %s", rec.Damage)
	case rec.Kind != store.KindRun:
		return r.refuse("hutch show "+rec.ID+" --tree names its runs, which can",
			"it is a %s, in which a model answers as it likes", rec.Kind)
	case rec.State == store.StateRunning:
		return r.refuse("", "it is still running")
	case rec.State != store.StateFinished:
		return r.refuse("", "it is %s: there is no result to compare with", rec.State)
	}
	report, err := r.store.Verify(ctx, rec.ID)
	if err != nil {
		return err
	}
	for _, f := range report.Findings {
		if !f.Harmless {
			return r.refuse("hutch audit verify "+rec.ID+" says more", "its record was changed: %s %s", f.Path, f.Detail)
		}
	}
	raw, err := rec.Result()
	if err != nil {
		return err
	}
	if r.was, err = result.Decode(raw); err != nil {
		return r.refuse("", "%v", err)
	}
	if r.was.Sandbox != nil && !r.was.Kept {
		return r.refuse(fmt.Sprintf("hutch exec %s -- CMD runs a command there as it is now", r.was.Sandbox.Name),
			"it ran in the persistent sandbox %s, and what that was like then is not recorded", r.was.Sandbox.Name)
	}
	if r.was.TTY {
		r.tell("terminal", "it had one", "it has none: both streams are apart")
	}
	return nil
}

// recorded gathers what the record has.
func (r *Replay) recorded() (runfile.Recorded, error) {
	def, err := r.rec.Definition()
	if err != nil {
		return runfile.Recorded{}, err
	}
	events, err := r.rec.Events()
	if err != nil {
		return runfile.Recorded{}, err
	}
	out := runfile.Recorded{Definition: def, Backend: r.was.Backend.Name}
	refs := map[string]store.FileRef{}
	for _, e := range events {
		switch e.Type {
		case store.EventBegin:
			var d store.BeginData
			if json.Unmarshal(e.Data, &d) == nil {
				r.hutch = d.Hutch
			}
		case store.EventPlan:
			var d struct{ Config json.RawMessage }
			if json.Unmarshal(e.Data, &d) == nil {
				out.Config = d.Config
			}
		case store.EventCode:
			for _, f := range e.Files {
				refs[f.Path] = f
			}
		}
	}
	out.Open = func(path string) (io.ReadCloser, error) {
		name := "code/" + path
		if refs[name].Path == "" {
			return nil, fmt.Errorf("the record of run %s has no file %s", r.rec.ID, path)
		}
		root, err := os.OpenRoot(r.rec.Dir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		f, _, err := safefile.OpenLinked(root, filepath.FromSlash(name), refs[name].Size)
		return f, err
	}
	return out, nil
}

// complete finds what the record lacks, and puts the run where it is to run.
func (r *Replay) complete(d *runfile.Recalled, o Options) error {
	other := o.Backend != "" && o.Backend != r.was.Backend.Name
	if other { // what the first one was given does not matter
		d.Missing = slices.DeleteFunc(d.Missing, func(m runfile.Missing) bool {
			return strings.HasPrefix(m.Path,
				"backend ")
		})
	}
	var why error
	if len(d.Missing) > 0 || other {
		now, err := r.evaluate(d, o)
		switch why = err; {
		case err == nil:
			d.Fill(now)
			if b := now.BackendNamed(o.Backend); other && b != nil {
				d.Backends = []*runfile.Backend{b}
				r.tell("backend block", "that of "+r.was.Backend.Name, "that of "+o.Backend+" as "+d.File+" has it now")
				other = false
			}
		case len(d.Missing) == 0:
			why = nil
		}
	}
	if other {
		d.Backends = []*runfile.Backend{runfile.NewBackend(o.Backend)}
	}
	if len(d.Backends) == 0 {
		return r.refuse("name one with --backend", "it ran on no backend: none was able")
	}
	if len(d.Missing) == 0 {
		return nil
	}
	var names []string
	env := ""
	for _, m := range d.Missing {
		names = append(names, m.Path)
		if name, ok := strings.CutPrefix(m.Path, `env["`); ok && env == "" {
			env = strings.TrimSuffix(name, `"]`)
		}
	}
	fix := "give the variables of " + d.File + " again with --var NAME=VALUE, --var-file or HUTCH_VAR_NAME"
	if d.File == "" {
		fix = ""
	}
	if env != "" {
		if fix != "" {
			fix += "; "
		}
		fix += "a variable of the environment can be given with -e " + env + "=VALUE, or -e " + env +
			" to pass it on from here"
	}
	reason := "the record lacks " + strings.Join(names, ", ") + ", which was sensitive and is not stored"
	if why != nil {
		reason += "; and the run file does not give it: " + why.Error()
	}
	return r.refuse(fix, "%s", reason)
}

// evaluate is the run as its run file gives it now.
func (r *Replay) evaluate(d *runfile.Recalled, o Options) (*runfile.Definition, error) {
	path := RunFile(r.rec)
	switch {
	case path == "":
		return nil, errors.New("it has none")
	case o.RunFile == nil:
		return nil, errors.New("it is not looked at")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is gone", path)
	}
	conf, err := o.RunFile(path)
	if err != nil {
		return nil, err
	}
	for _, now := range conf.Runs() {
		if now.Instance == d.Instance {
			return now, nil
		}
	}
	return nil, fmt.Errorf("%s has no run %s any more", path, d.Instance)
}

// Run runs it again, as its own run whose parent is the first one, and compares the two.
func (r *Replay) Run(ctx context.Context, runner *run.Runner, s run.Streams, hutch string) (*Report, error) {
	is, err := runner.Run(ctx, r.Definition, s)
	if err != nil {
		return nil, err
	}
	if is.Cause == sdk.CauseCancelled && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	again, err := r.store.Load(is.ID)
	if err != nil {
		return nil, err
	}
	return r.compare(again, is, hutch)
}

// RunFile is the path of the run file of a recorded run; "" when it had none, or its record does not tell where it lay.
func RunFile(rec *store.Record) string {
	var d struct{ File, Dir string }
	raw, err := rec.Definition()
	if err != nil || json.Unmarshal(raw, &d) != nil || d.File == "" || d.Dir == "" {
		return ""
	}
	return filepath.Join(d.Dir, filepath.Base(d.File))
}

// Workspace says what became of the host's directory since the first run.
type Workspace struct {
	Source string `json:"source,omitempty"` // "" for an empty directory of the sandbox
	Mode   string `json:"mode,omitempty"`
	// Untouched says that nothing in it changed since the run began, contents and names and permissions; a shared
	// workspace was written to by the run itself.
	Untouched bool `json:"untouched"`
	// Touched are paths that did change, the first few of Count.
	Touched []string `json:"touched,omitempty"`
	Count   int      `json:"touched_count,omitempty"`
	// Partly says that there are more paths than were looked at.
	Partly bool `json:"partly,omitempty"`
}

// Bounds of the look at a workspace.
const (
	mostLooked = 500_000 // paths
	mostNamed  = 5
)

var errEnough = errors.New("enough")

// workspace looks at the directory that the run had. A program can set the time of a file's contents and not the one of
// its last change, which is what is compared with the begin of the run.
func (r *Replay) workspace(ctx context.Context, d *runfile.Definition, o Options) error {
	for _, m := range d.Mounts {
		if m.Mode == runfile.MountWritable && !o.Shared {
			return r.refuse("--shared allows it", "its mount %s is writable: what the run writes would land in %s at once",
				m.Target, m.Source)
		}
	}
	w := d.Workspace
	if w == nil {
		r.place = Workspace{Untouched: true}
		return nil
	}
	r.place = Workspace{Source: w.Source, Mode: w.Mode, Untouched: true}
	if st, err := os.Stat(w.Source); err != nil || !st.IsDir() {
		return r.refuse("put it back, or run the run file again with hutch run", "its workspace %s is not there any more",
			w.Source)
	}
	if w.Mode == string(sdk.WorkspaceShared) && !o.Shared {
		return r.refuse("--shared allows it",
			"its workspace %s is shared: what the run writes would land in that directory at once", w.Source)
	}
	looked := 0
	err := filepath.WalkDir(w.Source, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if looked++; looked > mostLooked {
			r.place.Partly = true
			return errEnough
		}
		var at time.Time
		if err == nil {
			var st unix.Stat_t
			if err = unix.Lstat(path, &st); err == nil {
				at = time.Unix(st.Ctim.Unix())
			}
		}
		if err == nil && at.Before(r.was.Started) {
			return nil
		}
		r.place.Untouched = false
		if r.place.Count++; len(r.place.Touched) < mostNamed {
			rel, rerr := filepath.Rel(w.Source, path)
			if rerr != nil {
				return rerr
			}
			r.place.Touched = append(r.place.Touched, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// Style says how a report is written.
type Style struct{ Color bool }

func (s Style) paint(color, text string) string { return termsafe.Paint(s.Color, color, text) }

// WriteText writes the report for a person. Text of others is escaped.
func (r *Report) WriteText(w io.Writer, s Style) error {
	var b strings.Builder
	esc := termsafe.Line
	verdict := s.paint(termsafe.Green, "same")
	if !r.Same {
		n := fmt.Sprintf("%d differences", len(r.Differences))
		if len(r.Differences) == 1 {
			n = "1 difference"
		}
		verdict = s.paint(termsafe.Red, n)
	}
	fmt.Fprintf(&b, "%s: %s, %s repeated as %s\n", s.paint(termsafe.Bold, esc(r.Name)), verdict, r.Run, r.Replay)
	for _, d := range r.Differences {
		what := d.What
		if d.Path != "" {
			what += " " + esc(d.Path)
		}
		if d.Line > 0 {
			what += fmt.Sprintf(", line %d", d.Line)
		}
		fmt.Fprintf(&b, "  %s\n", s.paint(termsafe.Bold, what))
		if d.Diff != "" {
			for line := range strings.Lines(d.Diff) {
				b.WriteString("    " + s.side(line, esc(strings.TrimSuffix(line, "\n"))) + "\n")
			}
			continue
		}
		fmt.Fprintf(&b, "    %s\n    %s\n", s.paint(termsafe.Red, "- "+orNone(esc(d.Was))),
			s.paint(termsafe.Green, "+ "+orNone(esc(d.Is))))
	}
	b.WriteString("under\n")
	b.WriteString("  workspace: " + r.Workspace.text() + "\n")
	for _, c := range r.Circumstances {
		switch {
		case c.Was == "" || c.Was == c.Is:
			fmt.Fprintf(&b, "  %s: %s\n", esc(c.What), esc(c.Is))
		default:
			fmt.Fprintf(&b, "  %s: %s, then %s\n", esc(c.What), esc(c.Was), esc(c.Is))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// side paints a line of a diff.
func (s Style) side(line, text string) string {
	switch line[0] {
	case '-':
		return s.paint(termsafe.Red, text)
	case '+':
		return s.paint(termsafe.Green, text)
	case '@':
		return s.paint(termsafe.Cyan, text)
	}
	return text
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// text says in a line what became of the workspace.
func (w Workspace) text() string {
	esc := termsafe.Line
	partly := ""
	if w.Partly {
		partly = fmt.Sprintf(" (of the first %d paths)", mostLooked)
	}
	switch {
	case w.Source == "":
		return "an empty directory"
	case w.Untouched:
		return esc(w.Source) + ", in which nothing was touched since the run began" + partly
	}
	var names []string
	for _, p := range w.Touched {
		names = append(names, esc(p))
	}
	more := ""
	if n := w.Count - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	what := fmt.Sprintf("%d paths were", w.Count)
	if w.Count == 1 {
		what = "1 path was"
	}
	return fmt.Sprintf("%s, in which %s touched since the run began%s: %s%s", esc(w.Source), what, partly,
		strings.Join(names, ", "), more)
}
