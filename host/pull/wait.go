package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/push"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
)

// Wait says how long to wait for a bundle.
type Wait struct {
	Interval time.Duration // between two looks; 0 means 2 s
	Timeout  time.Duration // 0 means 30 minutes
	// Progress is told, after each look, how long it has been and what the command printed last, escaped; it may be nil.
	Progress func(waited time.Duration, last string)
}

// await waits for the bundle, and returns a private copy of it. When nothing runs in the sandbox that could still make
// it, it is made here.
func (p *puller) await(ctx context.Context) (*os.File, error) {
	w := p.o.Wait
	if w.Interval <= 0 {
		w.Interval = 2 * time.Second
	}
	if w.Timeout <= 0 {
		w.Timeout = 30 * time.Minute
	}
	start := time.Now()
	for {
		running := p.running() // looked at first: what it leaves when it ends is found then
		f, err := p.fetch(ctx)
		if !errors.Is(err, push.ErrNoBundle) {
			return f, err
		}
		if p.sb.Asleep() && !running {
			if err := p.settled(ctx); err != nil {
				return nil, err
			}
		}
		if err := p.sb.Rouse(ctx); err != nil { // not before: a bundle on this host needs no VM
			return nil, err
		}
		if !running {
			return p.handIn(ctx)
		}
		waited := time.Since(start)
		if waited >= w.Timeout {
			summary := fmt.Sprintf("no bundle after %s: the command in %s still runs", waited.Round(time.Second), p.info.Name)
			if last := p.lastLines(5); len(last) > 0 {
				summary += "; its last lines:\n  " + strings.Join(last, "\n  ")
			}
			return nil, &Error{Summary: summary, Hints: []string{
				"the sandbox goes on; nothing in " + p.push.Repository + " changed",
				fmt.Sprintf("hutch logs -f %s shows what it does; hutch pull --timeout 2h %s waits longer", p.push.Run, p.info.Name)}}
		}
		if w.Progress != nil {
			w.Progress(waited, p.lastLine())
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(w.Interval, w.Timeout-waited)):
		}
	}
}

// running reports whether the command of the push runs.
func (p *puller) running() bool {
	if p.push.Run == "" {
		return false
	}
	r, err := p.st.Load(p.push.Run)
	return err == nil && r.State == store.StateRunning
}

// handIn has the bundle made of what is committed.
func (p *puller) handIn(ctx context.Context) (*os.File, error) {
	o, err := push.HandIn(ctx, p.sb, p.push)
	if err != nil {
		return nil, err
	}
	p.out.Uncommitted = o.Uncommitted
	if o.Nothing {
		return nil, p.nothing(o)
	}
	f, err := p.fetch(ctx)
	if errors.Is(err, push.ErrNoBundle) {
		err = fmt.Errorf("the bundle %s was made in the sandbox and is not there", p.x.Bundle())
	}
	return f, err
}

// errPulled says that the ref holds all that was committed in the sandbox.
var errPulled = errors.New("everything was pulled already")

// settled returns why a sandbox that sleeps need not be woken: since hutch handed in its commits, and pulled them,
// nothing ran in it and nothing was put into it. It is nil where the sandbox has to be asked.
func (p *puller) settled(ctx context.Context) error {
	events, err := p.sb.Events()
	if err != nil {
		return err
	}
	var last push.HandedIn
	var changed uint64 // the last event that may have come with commits
	running := map[string]bool{}
	pulled := ""
	for _, e := range events {
		var data struct{ Run, To string }
		switch e.Type {
		case push.EventHandIn:
			pulled, last = "", push.HandedIn{}
			if err := json.Unmarshal(e.Data, &last); err != nil {
				return err
			}
			continue
		case EventPull, store.EventExecStart, store.EventExecEnd:
			if err := json.Unmarshal(e.Data, &data); err != nil {
				return err
			}
		case store.EventSandboxRecord, store.EventSandboxStop, store.EventSandboxStart:
			continue
		}
		switch e.Type {
		case EventPull:
			pulled = data.To
			continue
		case store.EventExecStart:
			running[data.Run] = true
		case store.EventExecEnd:
			delete(running, data.Run)
		}
		changed = e.Seq
	}
	if last.After < changed || len(running) > 0 {
		return nil
	}
	if last.Nothing {
		return p.nothing(last.Outcome)
	}
	if p.out.To, err = p.repo.Commit(ctx, p.out.Ref); err != nil || p.out.To != pulled {
		return nil // the user removed or moved the ref
	}
	return errPulled
}

// nothing is the error where no commit was made.
func (p *puller) nothing(o push.Outcome) error {
	e := &Error{Summary: fmt.Sprintf("there is nothing to pull: no commit was made in %s, and no command runs there", p.info.Name)}
	if o.Uncommitted > 0 {
		e.Summary += fmt.Sprintf("; %s in no commit", paths(o.Uncommitted))
		e.Hints = append(e.Hints, fmt.Sprintf("hutch exec -w %s %s -- git commit -am MESSAGE commits them", p.push.Clone, p.info.Name))
	}
	if p.push.Run != "" {
		e.Hints = append(e.Hints, "hutch logs "+p.push.Run+" shows what the command printed")
	}
	e.Hints = append(e.Hints, fmt.Sprintf("hutch push --resume %s runs it again", p.info.Name))
	return e
}

func paths(n int) string {
	if n == 1 {
		return "1 path in it is"
	}
	return fmt.Sprintf("%d paths in it are", n)
}

// fetch copies the bundle to a file that is nobody else's.
func (p *puller) fetch(ctx context.Context) (f *os.File, err error) {
	if f, err = os.OpenFile(store.TempName("pull"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if err = p.x.Fetch(ctx, f, p.o.Caps.MaxBytes()); err != nil {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		var bad *push.HostileError
		if errors.As(err, &bad) {
			hints := []string{fmt.Sprintf("nothing in %s changed; what stands there stays in the sandbox %s", p.push.Repository, p.info.Name),
				fmt.Sprintf("hutch exec %s -- rm -rf %s, and then hutch pull %s, recreate it from what is committed there", p.info.Name, p.x.Bundle(), p.info.Name)}
			if bad.TooLarge {
				hints = append(hints, "hutch pull --max-size SIZE "+p.info.Name+" takes larger ones")
			}
			return nil, &Error{Summary: bad.Error(), Err: err, Hints: hints}
		}
		return nil, err
	}
	return f, nil
}

// lastLine is what the command printed last.
func (p *puller) lastLine() string {
	if l := p.lastLines(1); len(l) > 0 {
		return l[0]
	}
	return ""
}

// lastLines are the last n lines that are not empty of what the command printed, escaped: of stdout, or of stderr when
// it printed nothing else.
func (p *puller) lastLines(n int) []string {
	r, err := p.st.Load(p.push.Run)
	if err != nil {
		return nil
	}
	for _, stream := range []store.Stream{store.Stdout, store.Stderr} {
		log, err := r.OpenLog(stream)
		if err != nil {
			continue
		}
		var b strings.Builder
		if log.TailBytes(2048) == nil {
			_, err = log.WriteTo(&b)
		}
		_ = log.Close()
		var lines []string
		for line := range strings.Lines(b.String()) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, termsafe.Line(line))
			}
		}
		if err == nil && len(lines) > 0 {
			return lines[max(0, len(lines)-n):]
		}
	}
	return nil
}
