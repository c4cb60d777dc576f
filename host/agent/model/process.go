package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/helper"
	"github.com/hutch-run/hutch/host/keep"
)

// How long the process may take for what needs no provider. They guard against a hang.
const (
	startTimeout = 60 * time.Second
	closeTimeout = 10 * time.Second
)

// maxRequest is how long a conversation may be, in bytes.
const maxRequest = 64 << 20

// Reply is one line that the second process writes. hutch writes the [Config] and then requests, one after the other.
// An empty Reply says that the process is ready; each request is answered by any number of pieces of text and at last
// the answer or the error. The end of its input ends the process and what it is doing.
type Reply struct {
	Delta  string  `json:"delta,omitempty"`
	Answer *Answer `json:"answer,omitempty"`
	Error  *Error  `json:"error,omitempty"`
}

// secretConfig is a Config that is written with its key, for the pipe to the second process.
type secretConfig Config

// process is a [Client] that asks through a second process.
type process struct {
	config Config
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	last   keep.Tail    // of what it says besides
	wait   func() error // safe for concurrent use
	closed atomic.Bool
	turn   sync.Mutex // requests go one after the other
}

// Open starts the process that talks to c's provider. It ends when the client is closed, and with the process that
// opened it, also when that is killed. ctx bounds the start alone.
func Open(ctx context.Context, c Config) (Client, error) {
	c = c.WithDefaults()
	if err := c.Check(); err != nil {
		return nil, err
	}
	_, program, err := helper.Find()
	if err != nil {
		return nil, err
	}
	return start(ctx, program, c)
}

func start(ctx context.Context, program string, c Config) (_ Client, err error) {
	p := &process{config: c, cmd: exec.Command(program, "model"), last: keep.Tail{Max: 4 << 10}}
	p.cmd.Env = environment(os.Environ())
	// An interrupt from the terminal is for hutch, which ends the process in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.last
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	var log *os.File
	if c.Log != "" {
		if log, err = os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return nil, err
		}
		p.last.Copy = log // a disk that is full must not stop a model
	}
	p.wait = sync.OnceValue(func() error {
		defer log.Close() // nothing is lost: writes are not buffered
		return p.cmd.Wait()
	})
	if err := p.cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	late := fmt.Errorf("%s did not start within %s", helper.Name, startTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, late)
	defer cancel()
	stop := context.AfterFunc(ctx, p.kill)
	c.Budget = Budget{} // it is held here
	_, err = p.ask(secretConfig(c), nil)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		p.kill()
		_ = p.wait() // it was killed
		return nil, err
	}
	return p, nil
}

// environment keeps of ours what a program needs to reach a network. No key is among it.
func environment(all []string) []string {
	keep := []string{"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE",
		"SSL_CERT_DIR", "GODEBUG", "GOCOVERDIR"}
	some := []string{}
	for _, kv := range all {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(keep, strings.ToUpper(name)) {
			some = append(some, kv)
		}
	}
	return some
}

// Answer implements [Client].
func (p *process) Answer(ctx context.Context, r Request, delta func(text string)) (Answer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	if len(body) > maxRequest {
		return Answer{}, &Error{Kind: KindTooLong,
			Message: fmt.Sprintf("the conversation is %d MiB long, and at most %d", len(body)>>20, maxRequest>>20)}
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	a, err := p.ask(json.RawMessage(body), func(text string) {
		if delta != nil && ctx.Err() == nil {
			delta(text)
		}
	})
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	return a, err
}

// ask writes one line and reads the reply, up to the answer. The reply to a Config is empty.
func (p *process) ask(line any, delta func(text string)) (Answer, error) {
	if json.NewEncoder(p.in).Encode(line) != nil {
		return Answer{}, p.gone("it ended")
	}
	for {
		var r Reply
		switch err := p.out.Decode(&r); {
		case errors.Is(err, io.EOF):
			return Answer{}, p.gone("it ended")
		case err != nil:
			p.kill()
			return Answer{}, p.gone(err.Error())
		case r.Error != nil:
			return Answer{}, r.Error
		case r.Answer != nil:
			return *r.Answer, nil
		case delta == nil:
			return Answer{}, nil
		}
		delta(r.Delta)
	}
}

// gone waits for the end of a process that no longer reads or writes, and returns an error with its last words.
func (p *process) gone(what string) error {
	t := time.AfterFunc(closeTimeout, p.kill)
	defer t.Stop()
	err := p.wait()
	if p.closed.Load() {
		return errors.New("the client of the model is closed")
	}
	if err != nil {
		what += ": " + err.Error()
	}
	last, _ := p.last.Bytes()
	if words := strings.TrimSpace(p.config.Redact(string(last))); words != "" {
		what += "; its last words are:\n" + words
	}
	return &Error{Kind: KindProtocol, Message: helper.Name + " does not work: " + what}
}

func (p *process) kill() { _ = p.cmd.Process.Kill() } // it may be gone

// Close implements [Client]. A request that is being answered ends with an error.
func (p *process) Close() error {
	p.closed.Store(true)
	_ = p.in.Close() // which is the signal to end
	t := time.AfterFunc(closeTimeout, p.kill)
	defer t.Stop()
	_ = p.wait() // how it ended is of no interest
	return nil
}
