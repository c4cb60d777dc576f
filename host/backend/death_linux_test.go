package backend

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

func TestDeathDuringACall(t *testing.T) {
	tests := map[string]struct{ how, lastWords string }{
		"dies":   {"signal: killed", "about to die"},
		"panics": {"exit status 2", "panic: in a goroutine of its own"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			logs := t.TempDir()
			b := get(t, pool(t, func(o *Options) { o.LogDir = logs }, name), name)
			_, err := b.Check(context.Background())
			var e *Error
			var d *DiedError
			if !errors.As(err, &e) || e.Backend != name || e.Call != "check" || !errors.As(err, &d) {
				t.Fatalf("got %T %v", err, err)
			}
			if d.How != tt.how || !strings.Contains(lastWords(d.Lines), tt.lastWords) || d.Log != filepath.Join(logs, name+".log") {
				t.Errorf("got %+v", d)
			}
			if len(d.Lines) > lastLines {
				t.Errorf("%d lines", len(d.Lines))
			}
			if _, err := b.Describe(context.Background()); !errors.As(err, &d) {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// An answer that does not come is reported with what the backend said last, and where the rest of it is.
func TestNoAnswer(t *testing.T) {
	logs := t.TempDir()
	b := get(t, pool(t, func(o *Options) { o.LogDir = logs }, "waits"), "waits")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer b.Tap(func(Line) {
		cancel(&sdk.Error{Reason: sdk.ReasonUnavailable, Summary: "no answer within a month", Err: context.DeadlineExceeded})
	})()
	_, err := b.Check(ctx)
	want := `backend "waits": check: no answer within a month: its last words: waiting for the moon (log: ` + filepath.Join(logs, "waits.log") + ")"
	if err == nil || err.Error() != want || sdk.ReasonOf(err) != sdk.ReasonUnavailable {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDeathDuringExec(t *testing.T) {
	b := get(t, pool(t, nil, "plain"), "plain")
	sb := sandbox(t, b)
	var out bytes.Buffer
	e, err := sb.Start(context.Background(), &client.Command{Argv: []string{"/bin/sh", "-c", "echo $$; exec sleep 1000"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	<-e.Started()
	if err := syscall.Kill(b.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err = e.Wait()
	var d *DiedError
	if !errors.As(err, &d) || d.How != "signal: killed" {
		t.Errorf("got %v", err)
	}
	// The command is in its own group: only a real backend's sandbox would have died too.
	if pid, err := strconv.Atoi(strings.TrimSpace(out.String())); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// A stopped plugin is found out by the keepalive, and a stop of it is bounded.
func TestAStoppedPlugin(t *testing.T) {
	t.Run("stop is bounded", func(t *testing.T) {
		p := NewPool(Options{Dir: shortDir(t), Paths: []string{install(t, "plain")}, StopTimeout: 300 * time.Millisecond})
		b := get(t, p, "plain")
		if err := syscall.Kill(b.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := unix.Waitid(unix.P_PID, b.PID, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := p.Close(context.Background())
		if err == nil || !strings.Contains(err.Error(), "it was not done within 300ms") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > 14*time.Second { // gRPC would find it out after 15
			t.Errorf("took %s", took)
		}
		<-b.Done()
	})
	t.Run("a call ends", func(t *testing.T) {
		if testing.Short() {
			t.Skip("takes 16 seconds: gRPC pings no sooner than after 10, and waits 5")
		}
		t.Parallel()
		p := NewPool(Options{Dir: shortDir(t), Paths: []string{install(t, "stops")}})
		b := get(t, p, "stops")
		start := time.Now()
		_, err := b.Check(context.Background())
		var d *DiedError
		if !errors.As(err, &d) || !strings.Contains(err.Error(), "it did not answer any more, and was killed") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > 25*time.Second {
			t.Errorf("took %s", took)
		}
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A backend that does not end a command in time is killed, and its group with it.
func TestADeafBackend(t *testing.T) {
	b := get(t, pool(t, func(o *Options) { o.Slack = 100 * time.Millisecond }, "deaf"), "deaf")
	sb := sandbox(t, b)
	start := time.Now()
	_, err := sb.Exec(context.Background(), &client.Command{Argv: []string{"sleep", "1000"}, Timeout: 100 * time.Millisecond, Grace: 100 * time.Millisecond})
	want := `backend "deaf": exec: the backend did not end the command within 200ms after its timeout of 100ms`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	<-b.Done()
	if took := time.Since(start); took > time.Minute { // the command sleeps a quarter of an hour
		t.Errorf("took %s", took)
	}
}

// Killing a plugin kills what it started, too.
func TestTheGroupDiesWithThePlugin(t *testing.T) {
	for name, end := range map[string]func(*Pool, *Backend) error{
		"close":   func(p *Pool, _ *Backend) error { return p.Close(context.Background()) },
		"it died": func(_ *Pool, b *Backend) error { err := syscall.Kill(b.PID, syscall.SIGKILL); <-b.Done(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			p := pool(t, nil, "child")
			b := get(t, p, "child")
			findings, err := b.Check(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(findings[0].Detail)
			if err != nil {
				t.Fatal(err)
			}
			child, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(child)
			if err := end(p, b); err != nil {
				t.Fatal(err)
			}
			ended(t, "the child", child, 5*time.Second)
		})
	}
}
