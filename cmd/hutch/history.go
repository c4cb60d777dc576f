package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
)

// runRef is the operand that names one run.
type runRef struct {
	ID string `arg:"" optional:"" default:"latest" name:"run" help:"Id of a run, the beginning of one, the beginning of its last part, or latest (default)." complete:"run"`
}

// load finds the run that ref means.
func load(s *store.Store, ref string) (*store.Record, error) {
	id, err := s.Resolve(ref)
	switch {
	case errors.Is(err, store.ErrNotFound) && ref == "latest":
		return nil, hint(errors.New("there are no runs yet"), "hutch run examples/hello.hcl makes one")
	case errors.Is(err, store.ErrNotFound):
		if last, err := s.List(store.Filter{Limit: 1, Sandbox: ref}); err == nil && len(last) > 0 {
			return s.Load(last[0].ID)
		}
		return nil, hint(fmt.Errorf("no run %q", ref), "hutch runs lists them")
	case err != nil:
		return nil, err
	}
	return s.Load(id)
}

// loadWhole is load where the parts of a generate or cycle are meant to be seen in it: latest is not one of them.
func loadWhole(s *store.Store, ref string) (*store.Record, error) {
	if ref == "latest" || ref == "-" {
		newest, err := s.List(store.Filter{Limit: 1, Whole: true})
		if err != nil {
			return nil, err
		}
		if len(newest) > 0 {
			ref = newest[0].ID
		}
	}
	return load(s, ref)
}

type logsCmd struct {
	runRef
	Follow bool   `short:"f" help:"Go on printing until the run ends."`
	Tail   int    `short:"n" default:"-1" placeholder:"N" help:"Begin N lines before the end."`
	Stream string `enum:"both,stdout,stderr,backend" default:"both" placeholder:"NAME" help:"both (default), stdout, stderr, or backend for what the backend itself logged."`
}

// Help is the text below the synopsis.
func (*logsCmd) Help() string {
	return `The program's stdout goes to stdout and its stderr to stderr, byte for byte when they are not terminals. What
the output limit dropped is said on stderr. Of a generate or cycle, what was said by and to the model and its tools is
printed.

    hutch logs
    hutch logs -f --tail 20 latest
    hutch logs 3k7q2 --stream stderr`
}

type auditCmd struct {
	Verify auditVerifyCmd `cmd:"" help:"Check event chains and all files they point at."`
}

type auditVerifyCmd struct {
	Runs   []string `arg:"" optional:"" name:"run" help:"Runs to check, a loop with the runs it is made of (default: all of them, and the audit chain)." complete:"run"`
	Head   string   `placeholder:"HASH" help:"A head that the audit chain had once: it must still hold it."`
	Output string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one report a line."`
}

// Help is the text below the synopsis.
func (*auditVerifyCmd) Help() string {
	return `Recomputes the hash of every event, follows the links between them, hashes every file that an event names,
and compares chains and results with the audit chain. Exit code 1 means that something recorded was damaged. What a
crash leaves behind, such as a torn last line, is said and is not damage.

The chain shows consistency, not authorship: anyone who can write the whole store can make a consistent one. If that
matters, keep the head that is printed for the audit chain elsewhere: with --head it shows a chain that was cut or
recreated since.

    hutch audit verify
    hutch audit verify latest -o json
    hutch audit verify --head 4f0c…`
}

func (c *auditVerifyCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	var good, bad int
	each := func(r *store.Report) error {
		if r.OK {
			good++
		} else {
			bad++
		}
		return c.show(u, r)
	}
	switch {
	case c.Head != "" && len(c.Runs) > 0:
		return errors.New("--head is about the audit chain, which is checked when no run is named")
	case c.Head != "" && (len(c.Head) != 64 || strings.Trim(c.Head, "0123456789abcdef") != ""):
		return errors.New("--head: a head is 64 hexadecimal digits, as hutch audit verify prints it")
	case len(c.Runs) == 0:
		err = s.VerifyAll(ctx, c.Head, each)
	}
	for _, ref := range c.Runs {
		rec, lerr := load(s, ref)
		if lerr != nil {
			return lerr
		}
		if err = s.VerifyTree(ctx, rec.ID, each); err != nil {
			break
		}
	}
	switch {
	case err != nil:
		return err
	case bad > 0:
		u.note("%s damaged, %s intact", count(bad, "chain"), count(good, "chain"))
		return exit(exitNo)
	}
	u.note("%s intact", count(good, "chain"))
	return nil
}

func (c *auditVerifyCmd) show(u *ui, r *store.Report) error {
	if c.Output == "json" {
		return json.NewEncoder(u.out).Encode(r)
	}
	name := r.Run
	if name == "" {
		name = "audit chain"
	}
	if r.Sandbox != "" {
		name = "sandbox " + r.Sandbox
	}
	for _, f := range r.Findings {
		what, at := "damaged", ""
		if f.Harmless {
			what = "note"
		}
		if f.Event > 0 {
			at = fmt.Sprintf(" event %d", f.Event)
		}
		if f.Path != "" {
			at += " " + f.Path
		}
		if err := u.line("%s: %s:%s %s: %s", name, what, at, strings.ReplaceAll(string(f.Problem), "_", " "),
			f.Detail); err != nil {
			return err
		}
	}
	if !r.OK || len(r.Findings) > 0 {
		return nil
	}
	if r.Run == "" {
		return u.line("%s: ok, %s, head %s", name, count(int(r.Events), "event"), r.Head)
	}
	return u.line("%s: ok, %s, %s", name, count(int(r.Events), "event"), count(r.Files, "file"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (c *logsCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	rec, err := load(s, c.ID)
	if err != nil {
		return err
	}
	if rec.Kind != store.KindRun {
		return c.transcript(u, s, rec)
	}
	streams := []store.Stream{store.Stream(c.Stream)}
	if c.Stream == "both" {
		streams = []store.Stream{store.Stdout, store.Stderr}
	}
	var wg errgroup.Group
	for _, stream := range streams {
		wg.Go(func() error { return c.print(ctx, u, rec, stream) })
	}
	return wg.Wait()
}

// transcript prints what was said in a loop.
func (c *logsCmd) transcript(u *ui, s *store.Store, rec *store.Record) error {
	if c.Follow || c.Tail >= 0 || c.Stream != "both" {
		return hint(fmt.Errorf("%s is the record of a %s, whose log is what was said in it: it has no streams to choose, "+
			"cut or follow", rec.ID, rec.Kind),
			"hutch show %s --tree says what was done so far, and hutch logs prints what one of its runs wrote", rec.ID)
	}
	past, err := record.Open(s, rec.ID)
	if err != nil {
		return err
	}
	if u.outTTY {
		return past.WriteTranscript(u.escaped())
	}
	return past.WriteTranscript(u.out)
}

// print writes one stream to where the program wrote it.
func (c *logsCmd) print(ctx context.Context, u *ui, rec *store.Record, stream store.Stream) error {
	open := rec.OpenLog
	if c.Follow {
		open = func(s store.Stream) (*store.LogReader, error) { return rec.AwaitLog(ctx, s) }
	}
	log, err := open(stream)
	if errors.Is(err, fs.ErrNotExist) {
		if c.Stream == "both" {
			return nil // it ended before it printed anything
		}
		return fmt.Errorf("run %s has no %s log", rec.ID, stream)
	} else if err != nil {
		return err
	}
	defer log.Close()
	u.fence(false, false)
	to, tty := u.out, u.outTTY
	if stream == store.Stderr {
		to, tty = u.err, u.errTTY
	}
	if tty {
		w := termsafe.NewWriter(to)
		defer w.Close()
		to = w
	}
	if _, dropped, err := log.Counts(); err == nil && dropped > 0 {
		u.note("%s: the first %s were dropped by the output limit", stream, humanize.IBytes(uint64(dropped)))
	}
	if err := log.Tail(c.Tail); err != nil {
		return err
	}
	if !c.Follow {
		_, err = log.WriteTo(to)
		return err
	}
	skipped, err := log.Follow(ctx, to)
	if skipped > 0 {
		u.note("%s: %s came faster than they could be printed and were dropped by the output limit", stream,
			humanize.IBytes(uint64(skipped)))
	}
	return err
}
