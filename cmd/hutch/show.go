package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/terminal"
	"github.com/hutch-run/hutch/host/termsafe"
)

// show is what a call of `hutch run` shows while it goes on: the output of the runs, and what they are doing.
type show struct {
	u        *ui
	cmd      *runCmd
	single   bool
	labels   *terminal.Labels
	attached *run.Streams
	undo     func()
	steps    steps // as lines, or on a terminal as one line that is replaced

	mu     sync.Mutex
	status string // the line of progress that is on the screen
	lost   error  // why output could not be passed on, unless nobody reads it any more

	runs, wide   int // how many runs there are, and the length of their longest name
	over, failed int // how many have ended

	table *table // of many runs on a terminal; nil otherwise
	drawn int    // lines of it that are on the screen
	last  string // these lines
}

// patience is how long something must go on before it is worth a line of progress: below that it would only flicker.
const patience = 250 * time.Millisecond

// bareShow shows what is being done, and no output.
func bareShow(u *ui, c *runCmd) *show {
	s := &show{u: u, cmd: c}
	s.steps.patience, s.steps.tell = plainPatience, func(text string) { u.note("%s", text) }
	if u.errTTY {
		s.steps.patience, s.steps.tell = patience, func(text string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.paint(text)
		}
	}
	return s
}

func newShow(u *ui, c *runCmd, defs []*runfile.Definition) (*show, error) {
	u.fence(c.GitHub, c.Output == "json")
	s := bareShow(u, c)
	s.single = len(defs) == 1
	var names []string
	for _, d := range defs {
		names = append(names, d.Instance)
		s.wide = max(s.wide, len(d.Instance))
	}
	s.runs = len(defs)
	s.labels = terminal.NewLabels(names, u.color && u.outTTY)
	if !s.single && u.errTTY && !c.Quiet && c.Output != "json" {
		s.table = &table{}
	}
	if c.TTY {
		if c.Output == "json" {
			return nil, errors.New("-t and -o json exclude each other: a terminal's output cannot be JSON")
		}
		streams, undo, err := terminal.Attach(u.in, os.Stdout, c.Interactive)
		if err != nil {
			return nil, err
		}
		s.attached, s.undo = &streams, undo
	}
	return s, nil
}

// restore gives the user's terminal back; it may be called twice.
func (s *show) restore() {
	if s.undo != nil {
		s.undo()
	}
	s.steps.endAll()
	s.clear()
}

// streams connects one run to the call's own streams.
func (s *show) streams(d *runfile.Definition) (run.Streams, func()) {
	switch {
	case s.attached != nil:
		streams := *s.attached
		streams.Published = s.published
		return streams, nil
	case s.cmd.Output == "json":
		return run.Streams{Stdin: s.stdin(), Published: s.published}, nil
	}
	if s.single {
		out, err := s.watched(s.u.out), s.watched(s.u.err)
		var done []func() error
		if s.u.outTTY {
			w := termsafe.NewWriter(out)
			out, done = w, append(done, w.Close)
		}
		if s.u.errTTY {
			w := termsafe.NewWriter(err)
			err, done = w, append(done, w.Close)
		}
		return run.Streams{Stdin: s.stdin(), Stdout: out, Stderr: err, Published: s.published}, func() { all(done) }
	}
	if s.table != nil {
		s.table.begin(d, time.Now())
	}
	out, done1 := s.labelled(d.Instance, s.u.out, s.u.outTTY)
	err, done2 := s.labelled(d.Instance, s.u.err, s.u.errTTY)
	return run.Streams{Stdout: out, Stderr: err, Published: s.published}, func() { all(append(done1, done2...)) }
}

// stdin is the call's own, if the user wants it connected. A terminal is read until restore, because hutch may ask
// there afterwards.
func (s *show) stdin() io.Reader {
	if !s.cmd.Interactive || !s.single {
		return nil
	}
	if term.IsTerminal(int(s.u.in.Fd())) {
		if r, err := terminal.NewReader(s.u.in); err == nil {
			s.undo = r.Stop
			return r
		}
	}
	return s.u.in
}

func (s *show) labelled(name string, to io.Writer, tty bool) (io.Writer, []func() error) {
	w := s.labels.Writer(name, s.watched(to))
	if !tty {
		return w, []func() error{w.Close}
	}
	safe := termsafe.NewWriter(w)
	return safe, []func() error{safe.Close, w.Close}
}

func all(fs []func() error) {
	for _, f := range fs {
		_ = f()
	}
}

// progress shows what a run is doing; no step is the end of that.
func (s *show) progress(p run.Progress) {
	step := p.Step
	if p.Total > 0 && step != "" && s.u.errTTY {
		step += " " + bar(p.Done, p.Total)
	}
	switch {
	case s.table != nil:
		s.table.step(p.Name, step, p.PID)
	case step == "":
		s.done(p.Name)
	default:
		s.doing(p.Name, step)
	}
}

// doing shows what is being done for name, if it takes long.
func (s *show) doing(name, step string) {
	if !s.cmd.Quiet && (!s.u.errTTY || s.attached == nil) {
		s.steps.step(name, termsafe.Line(name+": "+step))
	}
}

// done says that what was being done for name is done.
func (s *show) done(name string) {
	s.steps.end(name)
	s.clear()
}

// bar shows how much of something is done: [=====>    ] 55%.
func bar(done, total int64) string {
	const width = 20
	part := min(max(float64(done)/float64(total), 0), 1)
	full := int(part * width)
	line := strings.Repeat("=", full)
	if full < width {
		line += ">"
	}
	return fmt.Sprintf("[%-*s] %d%%", width, line, int(100*part))
}

// step shows what is being done for name, on a terminal only.
func (s *show) step(name, step string) {
	if s.u.errTTY {
		s.doing(name, step)
	}
}

// clear takes the line of progress away.
func (s *show) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
}

// wipe is clear with mu held.
func (s *show) wipe() {
	s.paint("")
	if s.drawn > 0 {
		_, _ = io.WriteString(s.u.err, above(s.drawn))
		s.drawn = 0
	}
}

// paint replaces the line of progress. It is called with mu held.
func (s *show) paint(text string) {
	if s.status == "" && text == "" {
		return
	}
	if w := s.u.width - 1; w > 0 && len(text) > w {
		text = text[:w]
	}
	s.status = text
	_, _ = fmt.Fprintf(s.u.err, "\r\x1b[K%s", text)
}

// clearing gives a writer that takes the line of progress away before it writes.
func (s *show) clearing(w io.Writer) io.Writer {
	if !s.u.errTTY {
		return w
	}
	return writerFunc(func(p []byte) (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wipe()
		return w.Write(p) // no table is drawn between the two
	})
}

// watched is clearing, and remembers why output could not be written. A program cannot tell, because hutch reads it:
// were nothing said, a full disk would look like a program that printed little.
func (s *show) watched(w io.Writer) io.Writer {
	w = s.clearing(w)
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		if err != nil && !errors.Is(err, syscall.EPIPE) {
			s.mu.Lock()
			if s.lost == nil {
				s.lost = err
			}
			s.mu.Unlock()
		}
		return n, err
	})
}

// whole is nil when all output of the runs was passed on, or nobody was there any more to read it.
func (s *show) whole() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		return nil
	}
	return hint(fmt.Errorf("output of the run is missing: %w", s.lost), "hutch logs prints what the program wrote")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// result shows one result as soon as it is there.
func (s *show) result(r *result.Result) {
	s.done(r.Name)
	s.ended(r)
	if s.cmd.Output == "json" && !s.single {
		return // it comes in the order of the files
	}
	if !s.single && r.OK && !s.cmd.Quiet && !s.cmd.Verbose {
		_ = report.Line(s.labels.Plain(s.clearing(s.u.err)), r, s.wide, report.Style{Color: s.u.color})
	}
	if s.silent(r) {
		// Its name is what a caller needs, who may not see the summary.
		if b := r.Sandbox; s.cmd.Keep && b != nil && !s.cmd.Quiet && s.cmd.Output != "json" {
			fmt.Fprintf(s.labels.Plain(s.clearing(s.u.err)),
				"hutch: the sandbox %[1]s is kept: hutch exec %[1]s -- CMD works in it, hutch rm %[1]s removes it\n", b.Name)
		}
		if !s.cmd.Quiet && s.cmd.Output != "json" {
			for _, line := range report.Denials(r) {
				if !s.single {
					line = r.Name + ": " + line
				}
				fmt.Fprintln(s.labels.Plain(s.clearing(s.u.err)), termsafe.Line("hutch: network: "+line))
			}
		}
		if s.single {
			s.dropped(r)
		}
		return
	}
	shown := *r
	if s.cmd.wanted() && !s.cmd.Keep {
		shown.Kept = false // only until it is applied; what stays is reported then
	}
	_ = report.Summary(s.labels.Plain(s.clearing(s.u.err)), &shown, report.Style{Color: s.u.color, Verbose: s.cmd.Verbose})
}

// again says that the nth attempt of a run is repeated.
func (s *show) again(r *result.Result, n int) {
	s.done(r.Name)
	if s.cmd.Quiet || s.cmd.Output == "json" {
		return
	}
	_, _ = fmt.Fprintln(s.labels.Plain(s.clearing(s.u.err)),
		termsafe.Line(fmt.Sprintf("hutch: %s: attempt %d of %d failed: %s",
			r.Name, n, s.cmd.Retry+1, report.Headline(r))))
}

// inOrder prints the result of one of several runs as JSON.
func (s *show) inOrder(r *result.Result) {
	if s.cmd.Output == "json" && !s.single {
		_ = r.EncodeLine(s.labels.Plain(s.watched(s.u.out))) // which keeps the error
	}
}

// progressEvery is the time between two lines on how far many runs are, where there is no terminal.
const progressEvery = 10 * time.Second

// watch says every now and then how far many runs are, until the function that it returns is called.
func (s *show) watch(tick <-chan time.Time) (stop func()) {
	if s.single || s.table == nil && s.u.errTTY || s.cmd.Quiet || s.cmd.Output == "json" {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-done:
				return
			case <-tick:
				if s.table != nil {
					s.draw(time.Now())
					continue
				}
				s.mu.Lock()
				text := s.progressed(0)
				s.mu.Unlock()
				s.u.note("%s", text)
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-gone
	})
}

// progressed says how far many runs are, and how long the others take at the pace of those that ended after so much
// time. It is called with mu held.
func (s *show) progressed(after time.Duration) string {
	text := fmt.Sprintf("%d of %s ended, %d failed", s.over, count(s.runs, "run"), s.failed)
	if left := s.runs - s.over; after > 0 && s.over > 0 && left > 0 {
		text += fmt.Sprintf(", about %s left", (after / time.Duration(s.over) * time.Duration(left)).Round(time.Second))
	}
	return text
}

// draw puts the table of what runs below the output, in the place of the one before.
func (s *show) draw(now time.Time) {
	wide, high, err := term.GetSize(int(s.u.stderr.Fd()))
	if err != nil || wide < 20 || high < 4 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := append([]string{s.progressed(now.Sub(s.u.started))}, s.table.rows(now, min(high-2, 20))...)
	for i, line := range lines {
		lines[i] = termsafe.Cut(line, wide-1) + "\n"
	}
	if text := strings.Join(lines, ""); s.drawn == 0 || text != s.last {
		_, _ = io.WriteString(s.u.err, above(s.drawn)+text)
		s.drawn, s.last = len(lines), text
	}
}

// above takes so many lines above the cursor away.
func above(lines int) string {
	if lines == 0 {
		return ""
	}
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", lines)
}

// ended counts.
func (s *show) ended(r *result.Result) {
	if s.table != nil {
		s.table.end(r.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over++; !r.OK {
		s.failed++
	}
}

// dropped says what of the workspaces went with the sandboxes.
func (s *show) dropped(rs ...*result.Result) {
	n := 0
	for _, r := range rs {
		n += r.ChangesDropped
	}
	if n > 0 && !s.cmd.Quiet && s.cmd.Output != "json" && !s.cmd.AllBackends {
		s.u.note("%s in the workspace dropped with the sandbox: --apply brings them back, --keep leaves the sandbox",
			count(n, "change"))
	}
}

// silent reports whether nothing is to be said about one run: several runs have a line each, and a command without a
// file that simply ended is like one without hutch, unless a person watches.
func (s *show) silent(r *result.Result) bool {
	switch ended := r.Cause == "exited" && r.Error == nil; {
	case s.cmd.Output != "json" && len(r.NewRepositories) > 0:
		return false // which are a danger to the host
	case s.cmd.Output == "json", s.cmd.Quiet && ended:
		return true
	case r.Flaky && s.single, s.cmd.Verbose:
		return false
	case r.File == "":
		return ended && (!s.u.errTTY || s.attached != nil)
	}
	return r.OK && !s.single
}

// finish shows what is to be shown once all runs have ended.
func (s *show) finish(rs []*result.Result, notStarted int) error {
	if s.single && s.cmd.Output == "json" && len(rs) == 1 {
		return rs[0].Encode(s.u.out)
	}
	compared := report.Compare(rs)
	if !s.cmd.AllBackends {
		compared = nil
	}
	if s.cmd.Output == "json" {
		enc := json.NewEncoder(s.u.out)
		for _, c := range compared {
			if err := enc.Encode(c); err != nil {
				return err
			}
		}
		return nil
	}
	if s.single || s.cmd.Quiet {
		return nil
	}
	if err := report.Totals(s.u.err, rs, report.Style{Color: s.u.color}); err != nil {
		return err
	}
	if err := report.Comparisons(s.u.err, compared, report.Style{Color: s.u.color}); err != nil {
		return err
	}
	s.dropped(rs...)
	if notStarted > 0 {
		s.u.note("%s not started", count(notStarted, "run"))
	}
	return nil
}

// junit, github and writeTo render the results for other programs.
func (c *runCmd) junit(rs []*result.Result) error {
	return writeTo(c.JUnit, func(w io.Writer) error { return report.JUnit(w, rs) })
}

func (c *runCmd) github(u *ui, rs []*result.Result) error {
	if !c.GitHub {
		return nil
	}
	// Annotations are workflow commands, which the service reads from both streams, each on its own line.
	out := u.stdout // past the fence
	if c.Output == "json" {
		out = u.stderr // stdout is for objects alone
	} else if len(rs) == 1 && !rs[0].OK && rs[0].Stdout.Text != "" && !strings.HasSuffix(rs[0].Stdout.Text, "\n") {
		if err := u.line(""); err != nil { // the program's last line has no end
			return err
		}
	}
	if err := report.Annotations(out, rs); err != nil {
		return err
	}
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	err = report.StepSummary(f, rs)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// checkWritable says before anything runs that a file which a flag names for afterwards could not be written.
func checkWritable(flag, path string) error {
	if path == "" {
		return nil
	}
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return fmt.Errorf("%s: %s is a directory, and this names a file", flag, path)
	case err == nil:
		err = unix.Access(path, unix.W_OK)
	default:
		dir := filepath.Dir(path)
		if st, derr := os.Stat(dir); derr != nil || !st.IsDir() {
			return fmt.Errorf("%s %s: there is no directory %s", flag, path, dir)
		}
		err = unix.Access(dir, unix.W_OK)
	}
	if err != nil {
		return fmt.Errorf("%s: %s cannot be written: %w", flag, path, err)
	}
	return nil
}

func writeTo(path string, render func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = render(f)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
