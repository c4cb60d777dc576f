package replay

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Schema identifies the JSON of a [Report].
const Schema = "hutch.replay/v1"

// Report says what differs between a run and its repetition.
type Report struct {
	Schema string `json:"schema"`
	Run    string `json:"run"`    // the first one
	Replay string `json:"replay"` // the one that repeats it
	Name   string `json:"name"`
	// Same says that there are no differences.
	Same        bool         `json:"same"`
	Differences []Difference `json:"differences"` // never null
	// Circumstances are what the two ran under; they are shown and do not count.
	Circumstances []Circumstance `json:"circumstances"`
	Workspace     Workspace      `json:"workspace"`
}

// Difference is one thing that came out otherwise.
type Difference struct {
	What string `json:"what"` // cause, exit_code, signal, stdout, stderr, output, change, dependencies, error
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"` // of a stream, from 1: the first one that differs
	Was  string `json:"was"`            // empty for nothing
	Is   string `json:"is"`
	Diff string `json:"diff,omitempty"` // of a small text, as the hunks of a unified diff
}

// Circumstance is something that the two ran under.
type Circumstance struct {
	What string `json:"what"`
	Was  string `json:"was"`
	Is   string `json:"is"`
}

func (r *Replay) tell(what, was, is string) {
	r.about = append(r.about, Circumstance{what, was, is})
}

// maxDiff bounds the outputs whose texts are compared, in bytes.
const maxDiff = 64 << 10

// mostListed bounds the outputs and the changes that are listed one by one.
const mostListed = 100

// compare explains what differs between the run and its repetition.
func (r *Replay) compare(again *store.Record, is *result.Result, hutch string) (*Report, error) {
	was := r.was
	c := &comparison{report: &Report{Schema: Schema, Run: was.ID, Replay: is.ID, Name: was.Name,
		Differences: []Difference{}, Workspace: r.place}}
	c.text("cause", string(was.Cause), string(is.Cause))
	c.text("exit_code", code(was.ExitCode), code(is.ExitCode))
	c.text("signal", was.Signal, is.Signal)
	c.text("error", failure(was), failure(is))
	for _, s := range []store.Stream{store.Stdout, store.Stderr} {
		if err := c.stream(s, r.rec, again); err != nil {
			return nil, err
		}
	}
	if err := c.outputs(r.rec, again, was, is); err != nil {
		return nil, err
	}
	if was.ChangesKnown && is.ChangesKnown {
		c.changes(was, is)
	} else {
		r.tell("changes", known(was.ChangesKnown), known(is.ChangesKnown))
	}
	c.text("dependencies", installed(was), installed(is))
	c.report.Same = len(c.report.Differences) == 0
	r.circumstances(is, hutch)
	c.report.Circumstances = r.about
	return c.report, nil
}

// circumstances says what the two ran under.
func (r *Replay) circumstances(is *result.Result, hutch string) {
	was := r.was
	note := func(what, a, b string) {
		if a != b {
			r.tell(what, a, b)
		}
	}
	note("hutch", cmp.Or(r.hutch, "unknown"), hutch)
	note("backend", was.Backend.Name+" "+was.Backend.Version, is.Backend.Name+" "+is.Backend.Version)
	note("isolation", was.Backend.Isolation, is.Backend.Isolation)
	if was.Backend.Name == is.Backend.Name && was.Backend.Version == is.Backend.Version {
		note("backend program", short(was.Backend.SHA256), short(is.Backend.SHA256))
	}
	held := func(x *result.Result) map[string]string {
		m := map[string]string{}
		for _, l := range x.Limits {
			m[string(l.Limit)] = l.Value + ", held by " + l.HeldBy
		}
		return m
	}
	a, b := held(was), held(is)
	var names []string
	for _, x := range append(slices.Clone(was.Limits), is.Limits...) {
		if !slices.Contains(names, string(x.Limit)) {
			names = append(names, string(x.Limit))
		}
	}
	for _, l := range names {
		note("limit "+l, cmp.Or(a[l], "none"), cmp.Or(b[l], "none"))
	}
	r.tell("wall time", span(was), span(is))
	if was.Usage.PeakMemory != nil && is.Usage.PeakMemory != nil {
		r.tell("peak memory", fmt.Sprintf("%d B", *was.Usage.PeakMemory), fmt.Sprintf("%d B", *is.Usage.PeakMemory))
	}
}

type comparison struct{ report *Report }

func (c *comparison) differ(d Difference) { c.report.Differences = append(c.report.Differences, d) }

func (c *comparison) text(what, was, is string) {
	if was != is {
		c.differ(Difference{What: what, Was: was, Is: is})
	}
}

// byPath compares two lists of what has a path. said is how one is shown; differ says how two differ, if they do.
func byPath[T any](c *comparison, what string, was, is []T, path, said func(T) string,
	differ func(was, is T) Difference) {
	now := map[string]T{}
	for _, x := range is {
		now[path(x)] = x
	}
	var list []Difference
	add := func(d Difference, at T) {
		if d != (Difference{}) {
			d.What, d.Path = what, path(at)
			list = append(list, d)
		}
	}
	for _, x := range was {
		n, there := now[path(x)]
		delete(now, path(x))
		if there {
			add(differ(x, n), x)
		} else {
			add(Difference{Was: said(x)}, x)
		}
	}
	for _, x := range now {
		add(Difference{Is: said(x)}, x)
	}
	c.list(what, list)
}

// outputs compares what was collected, by path, size and hash, and shows what differs in small texts.
func (c *comparison) outputs(a, b *store.Record, was, is *result.Result) (err error) {
	sized := func(o outputs.Output) string { return fmt.Sprintf("%d B, sha256 %s", o.Size, short(o.SHA256)) }
	byPath(c, "output", was.Outputs, is.Outputs, func(o outputs.Output) string { return o.Path }, sized,
		func(o, n outputs.Output) (d Difference) {
			switch {
			case o.SHA256 != n.SHA256 || o.Size != n.Size:
				d = Difference{Was: sized(o), Is: sized(n)}
				if o.Size <= maxDiff && n.Size <= maxDiff && err == nil {
					d.Diff, err = difference(a, b, "output/"+o.Path)
				}
			case o.Mode != n.Mode:
				d = Difference{Was: "mode " + o.Mode, Is: "mode " + n.Mode}
			}
			return d
		})
	return err
}

// list adds differences, of which those beyond the bound are only counted.
func (c *comparison) list(what string, list []Difference) {
	slices.SortStableFunc(list, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	more := max(len(list)-mostListed, 0)
	for _, d := range list[:len(list)-more] {
		c.differ(d)
	}
	if more > 0 {
		c.differ(Difference{What: what, Is: fmt.Sprintf("and %d more", more)})
	}
}

// difference is what differs in the text of a file of both records; "" when it is no text.
func difference(a, b *store.Record, name string) (string, error) {
	var text [2][]byte
	for i, rec := range []*store.Record{a, b} {
		root, err := os.OpenRoot(rec.Dir)
		if err != nil {
			return "", err
		}
		text[i], err = safefile.ReadFile(root, name, maxDiff)
		root.Close()
		if err != nil {
			return "", fmt.Errorf("run %s: %w", rec.ID, err)
		}
	}
	diff, _ := review.UnifiedText(text[0], text[1], review.Style{})
	return diff, nil
}

func (c *comparison) changes(was, is *result.Result) {
	said := func(x result.Change) string {
		s := fmt.Sprintf("%s, %d B", x.Kind, x.Size)
		if x.OldMode != x.NewMode {
			s += ", mode " + x.OldMode + " to " + x.NewMode
		}
		return s
	}
	byPath(c, "change", was.Changes, is.Changes, func(x result.Change) string { return x.Path }, said,
		func(x, n result.Change) (d Difference) {
			if said(x) != said(n) {
				d = Difference{Was: said(x), Is: said(n)}
			}
			return d
		})
	if was.ChangesMore != is.ChangesMore {
		c.differ(Difference{What: "change", Was: fmt.Sprintf("and %d more", was.ChangesMore),
			Is: fmt.Sprintf("and %d more", is.ChangesMore)})
	}
}

// stream compares what was kept of a stream, and how much was written.
func (c *comparison) stream(s store.Stream, a, b *store.Record) error {
	x, err := openLog(a, s)
	if err != nil {
		return err
	}
	defer x.Close()
	y, err := openLog(b, s)
	if err != nil {
		return err
	}
	defer y.Close()
	if x.dropped > 0 || y.dropped > 0 {
		if x.total != y.total {
			c.differ(Difference{What: string(s), Was: fmt.Sprintf("%d B, the first %d B of them not kept", x.total, x.dropped),
				Is: fmt.Sprintf("%d B, the first %d B of them not kept", y.total, y.dropped)})
			return nil // the lines that were kept are not the same ones
		}
	}
	line, was, is, err := firstDifference(x, y)
	if err != nil {
		return fmt.Errorf("compare %s of run %s and %s: %w", s, a.ID, b.ID, err)
	}
	if line > 0 {
		c.differ(Difference{What: string(s), Line: line, Was: was, Is: is})
	}
	return nil
}

func code(n *int) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func failure(r *result.Result) string {
	if r.Error == nil {
		return ""
	}
	return r.Error.Phase + ": " + r.Error.Summary
}

func known(k bool) string {
	if k {
		return "known"
	}
	return "not known: the backend cannot tell"
}

func installed(r *result.Result) string {
	var list []string
	for _, d := range r.Dependencies {
		list = append(list, d.Language+": "+strings.Join(d.Packages, " "))
	}
	return strings.Join(list, "; ")
}

func span(r *result.Result) string {
	return fmt.Sprintf("%.3fs", r.Usage.Wall.Duration().Seconds())
}

func short(hash string) string { return hash[:min(len(hash), 12)] }

// logText is the log of a stream, read from its beginning.
type logText struct {
	io.Reader
	io.Closer
	total, dropped int64
}

// openLog opens the log of a stream; one that is not there is empty.
func openLog(rec *store.Record, s store.Stream) (*logText, error) {
	l, err := rec.OpenLog(s)
	if errors.Is(err, fs.ErrNotExist) {
		empty := io.NopCloser(strings.NewReader(""))
		return &logText{Reader: empty, Closer: empty}, nil
	}
	if err != nil {
		return nil, err
	}
	t := &logText{Reader: l, Closer: l}
	if t.total, t.dropped, err = l.Counts(); err != nil {
		l.Close()
		return nil, err
	}
	return t, nil
}

// maxShown bounds a line that is shown of a stream, in bytes.
const maxShown = 500

// firstDifference finds the first line in which two texts differ, from 1, in bounded memory; 0 when they are the same.
// A line that is not there at all is "(end)".
func firstDifference(a, b io.Reader) (line int, was, is string, err error) {
	x, y := bufio.NewReaderSize(a, 64<<10), bufio.NewReaderSize(b, 64<<10)
	line = 1
	for {
		p, perr := x.ReadSlice('\n')
		q, qerr := y.ReadSlice('\n')
		for _, err := range []error{perr, qerr} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
				return 0, "", "", err
			}
		}
		if string(p) != string(q) {
			return line, shown(p), shown(q), nil
		}
		switch {
		case errors.Is(perr, io.EOF):
			return 0, "", "", nil
		case perr == nil:
			line++
		}
	}
}

func shown(line []byte) string {
	if len(line) == 0 {
		return "(end)"
	}
	text, ended := strings.CutSuffix(string(line), "\n")
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], "\ufffd") + "…"
	}
	text = strings.ToValidUTF8(text, "\ufffd")
	if !ended {
		text += " (no newline)"
	}
	return text
}
