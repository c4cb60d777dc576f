package model

import (
	"bytes"
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
)

// How long the process may take for what needs no provider. They guard against a hang.
const (
	startTimeout  = 60 * time.Second
	cancelTimeout = 20 * time.Second
	closeTimeout  = 10 * time.Second
)

// maxRequest is how long a conversation may be, in bytes.
const maxRequest = 64 << 20

// Ask is one line that hutch writes to the second process, after a first line with the [Config]. Requests go one after
// the other. An Ask without a request cancels the one that is being answered; it is still answered, with an error. The
// end of its input ends the process.
type Ask struct {
	Request *Request `json:"request,omitempty"`
}

// Reply is one line that comes back: an empty one once the process is ready, then for each request any number of pieces
// of text and at last the answer or the error.
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
	log    *tail
	wait   func() error // safe for concurrent use
	closed atomic.Bool
	turn   chan struct{} // holds one token: requests go one after the other
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
	p := &process{config: c, cmd: exec.Command(program, "model"), log: &tail{}, turn: make(chan struct{}, 1)}
	p.cmd.Env = environment(os.Environ())
	// An interrupt from the terminal is for hutch, which ends the process in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = p.log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	if c.Log != "" {
		if p.log.file, err = os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return nil, err
		}
	}
	p.wait = sync.OnceValue(func() error {
		defer p.log.file.Close() // nothing is lost: writes are not buffered
		return p.cmd.Wait()
	})
	if err := p.cmd.Start(); err != nil {
		p.log.file.Close()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	late := fmt.Errorf("%s did not start within %s", helper.Name, startTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, late)
	defer cancel()
	stop := context.AfterFunc(ctx, p.kill)
	var r Reply
	if err = p.send(secretConfig(c)); err == nil {
		r, err = p.next()
	}
	switch {
	case !stop():
		err = context.Cause(ctx)
	case err == nil && r.Error != nil:
		err = r.Error
	}
	if err != nil {
		p.kill()
		_ = p.wait() // it was killed
		return nil, err
	}
	p.turn <- struct{}{}
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
	body, err := json.Marshal(Ask{Request: &r})
	if err != nil {
		return Answer{}, err
	}
	if len(body) > maxRequest {
		return Answer{}, &Error{Kind: KindTooLong,
			Message: fmt.Sprintf("the conversation is %d MiB long, and at most %d", len(body)>>20, maxRequest>>20)}
	}
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	// A request that is cancelled is answered too, and only then is the next one sent.
	sent, hung := make(chan struct{}), make(chan *time.Timer, 1)
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(cancelTimeout, p.kill)
		<-sent
		_ = p.send(Ask{}) // a process that is gone needs no cancelling
		hung <- t
	})
	err = p.send(json.RawMessage(body))
	close(sent)
	var reply Reply
	for err == nil && reply.Answer == nil && reply.Error == nil {
		if reply, err = p.next(); reply.Delta != "" && delta != nil && ctx.Err() == nil {
			delta(reply.Delta)
		}
	}
	if !stop() {
		(<-hung).Stop()
		return Answer{}, context.Cause(ctx)
	}
	switch {
	case err != nil:
		return Answer{}, err
	case reply.Error != nil:
		return Answer{}, reply.Error
	}
	return *reply.Answer, nil
}

// send writes one line.
func (p *process) send(line any) error {
	if json.NewEncoder(p.in).Encode(line) != nil { // with one call, so lines are not mixed
		return p.gone("it ended")
	}
	return nil
}

// next reads one line.
func (p *process) next() (r Reply, err error) {
	switch err := p.out.Decode(&r); {
	case errors.Is(err, io.EOF):
		return r, p.gone("it ended")
	case err != nil:
		p.kill()
		return r, p.gone(err.Error())
	}
	return r, nil
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
	if words := strings.TrimSpace(p.config.Redact(string(p.log.end))); words != "" {
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

// tail keeps the end of what is written to it, and passes all of it on to a file, which may be nil.
type tail struct {
	end  []byte
	file *os.File
}

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.end = append(t.end, p...)
	if len(t.end) > most {
		t.end = bytes.Clone(t.end[len(t.end)-most:])
	}
	_, _ = t.file.Write(p) // a disk that is full must not stop a model
	return len(p), nil
}
