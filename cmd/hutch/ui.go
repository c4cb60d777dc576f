package main

// Rules of output, which every command keeps:
//
//   - Data goes to stdout: what the program printed, tables, JSON, run ids. Nothing else does, so that stdout can
//     always be piped.
//   - Everything else goes to stderr, one line each, prefixed with "hutch: ", in lower case and without a full stop;
//     hints follow on lines of their own. Diagnostics about a run file are blocks with an excerpt and no prefix.
//   - Colour and anything that moves is only for a terminal, and NO_COLOR is honoured.
//   - Text from a sandbox, a run file or a backend is escaped before it is shown, unless it is the program's own
//     output on its way to stdout.
//   - JSON is one object a line where there may be several, and indented where there is one.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/termsafe"
)

type ui struct {
	in       *os.File
	out, err io.Writer
	stdout   *os.File // out and err without a fence, for hutch's own orders to a CI service
	stderr   *os.File
	outTTY   bool
	errTTY   bool
	width    int
	color    bool // for stderr
	started  time.Time
	absolute bool // lists have times and no ages, so that only a change changes them
	host     host
	ahead    *ahead // what is being opened already; nil for nothing
	mu       sync.Mutex

	asked       asked
	reading     atomic.Bool  // nothing is there yet that a signal would have to undo
	interrupted atomic.Int32 // the signal that ended the call, or 0
	kill        func()       // what a second one does before the process ends; nil for nothing
	ending      sync.Mutex   // held, and never given back, by the code that decides the exit code
}

func newUI(in, out, err *os.File) *ui {
	u := &ui{in: in, out: out, err: err, stdout: out, stderr: err, started: time.Now()}
	if ds := termsafe.Runner(os.Getenv); len(ds) > 0 && !regular(err) {
		u.err = termsafe.NewFence(err, ds, false)
	}
	u.outTTY, u.errTTY = term.IsTerminal(int(out.Fd())), term.IsTerminal(int(err.Fd()))
	if u.errTTY {
		if w, _, e := term.GetSize(int(err.Fd())); e == nil {
			u.width = w
		}
		u.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return u
}

// fence keeps the output of programs from giving orders to the CI service that this call runs under, or to GitHub. A
// stream that goes to a file stays as it is.
func (u *ui) fence(github, json bool) {
	ds := termsafe.Runner(os.Getenv)
	if github {
		ds = append(ds, termsafe.Dialects[0])
	}
	if len(ds) == 0 {
		return
	}
	if !regular(u.stdout) {
		u.out = termsafe.NewFence(u.out, ds, json)
	}
	if !regular(u.stderr) {
		u.err = termsafe.NewFence(u.err, ds, false)
	}
}

func regular(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode().IsRegular()
}

// note prints a message on stderr.
func (u *ui) note(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	text := termsafe.String(fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintln(u.err, "hutch: "+strings.ReplaceAll(text, "\n", "\n       "))
}

// hinted is an error that comes with words about what to do.
type hinted struct {
	error
	hints []string
}

func (h *hinted) Unwrap() error { return h.error }

// hint adds what to do about err.
func hint(err error, format string, args ...any) error {
	return &hinted{err, []string{fmt.Sprintf(format, args...)}}
}

// yes asks at the terminal; no answer is no.
func (u *ui) yes(format string, args ...any) bool {
	fmt.Fprintf(u.err, format, args...)
	line, _ := bufio.NewReader(u.in).ReadString('\n')
	return strings.TrimSpace(line) == "y"
}

// status is the exit code of a call that would end with code: what interrupted it says more.
func (u *ui) status(code int) int {
	if sig := u.interrupted.Load(); sig != 0 {
		return 128 + int(sig)
	}
	return code
}

// plain is what err says, without the system call that failed: open and stat tell a user nothing about a file of
// theirs.
func plain(err error) string {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) && pe.Error() == err.Error() {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}

// fail says what went wrong and returns the exit code.
func (u *ui) fail(err error) int {
	code := exitFailure
	var coded interface{ ExitCode() int }
	var bare exit
	switch {
	case errors.As(err, &bare):
		code = int(bare)
	case errors.As(err, &coded):
		code = coded.ExitCode()
	}
	if code == exitFailure { // whatever an interrupt made of it
		code = u.status(code)
	}
	if errors.As(err, &bare) {
		return code
	}
	u.asked.fail(u, err, code)
	var ds diag.Diagnostics
	if errors.As(err, &ds) {
		u.diagnostics(ds)
		return code
	}
	if u.interrupted.Load() != 0 && errors.Is(err, errInterrupted) {
		return code
	}
	u.note("%s", plain(err))
	for h := (*hinted)(nil); errors.As(err, &h); err = h.error {
		for _, text := range h.hints {
			u.note("hint: %s", text)
		}
	}
	return code
}

// diagnostics shows findings about run files on stderr.
func (u *ui) diagnostics(ds diag.Diagnostics) {
	u.mu.Lock()
	defer u.mu.Unlock()
	_ = ds.Write(u.err, diag.Style{Color: u.color, Width: u.width})
}

// json writes one value to stdout, indented.
func (u *ui) json(v any) error {
	enc := json.NewEncoder(u.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table writes rows to stdout in columns. Cells are escaped.
func (u *ui) table(rows [][]string) error {
	w := tabwriter.NewWriter(u.out, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = termsafe.String(cell)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// printEach writes a list, one a line: objects with -o json, else what text says of them.
func printEach[T any](u *ui, output string, list []T, text func(T) string) error {
	for _, x := range list {
		err := error(nil)
		if output == "json" {
			err = json.NewEncoder(u.out).Encode(x)
		} else {
			err = u.line("%s", text(x))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// line writes one line of data to stdout. It is escaped.
func (u *ui) line(format string, args ...any) error {
	_, err := fmt.Fprintln(u.out, termsafe.String(fmt.Sprintf(format, args...)))
	return err
}

// onKill sets what is to be done before a second ^C ends the process.
func (u *ui) onKill(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kill = f
}

func (u *ui) runKill() {
	u.mu.Lock()
	f := u.kill
	u.mu.Unlock()
	if f != nil {
		f()
	}
}

// escaped is stdout for text that comes from a backend.
func (u *ui) escaped() io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		_, err := io.WriteString(u.out, termsafe.String(string(p)))
		return len(p), err
	})
}
