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
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/agent/model/channel"
	"github.com/hutch-run/hutch/host/helper"
)

// How long the program may take for what needs no provider. They are bounds against a hang and not expectations.
const (
	startTimeout  = 60 * time.Second
	cancelTimeout = 20 * time.Second
	closeTimeout  = 10 * time.Second
)

// maxRequest is how long a conversation may be, in bytes.
const maxRequest = 64 << 20

// Open starts the program that talks to c's provider, for as long as the client is open. It dies with the process that started
// it, also when that is killed. ctx is of the start alone; Close ends the program.
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

// child is a running program.
type child struct {
	config Config
	cmd    *exec.Cmd
	in     io.WriteCloser
	w      *channel.Writer
	log    *lastWords
	lines  chan channel.Line // what the program says; closed at its end
	quit   chan struct{}     // closed by Close: nobody takes lines any more
	exited chan struct{}     // closed when the process is gone and err is set
	err    error

	closing sync.Once
	turn    chan struct{} // holds one token: requests go one after the other
	id      int64         // of the last request, by whoever has the turn
}

// secretConfig is a Config that is written with its key, for the channel alone. Reading needs nothing special.
type secretConfig Config

func start(ctx context.Context, program string, c Config) (Client, error) {
	config, err := json.Marshal(secretConfig(c))
	if err != nil {
		return nil, err
	}
	k := &child{config: c, cmd: exec.Command(program, "model"), log: &lastWords{}, lines: make(chan channel.Line), quit: make(chan struct{}),
		exited: make(chan struct{}), turn: make(chan struct{}, 1)}
	k.cmd.Env = environment(os.Environ())
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is for hutch, which ends it in order
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	k.cmd.Stderr = k.log
	if c.Log != "" {
		f, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		k.log.file = f
	}
	if err := k.cmd.Start(); err != nil {
		k.log.close()
		return nil, fmt.Errorf("%s cannot be started: %w", program, err)
	}
	k.w = channel.NewWriter(k.in)
	k.turn <- struct{}{}
	go k.read(out)

	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("%s did not start within %s", helper.Name, startTimeout))
	defer cancel()
	l, err := k.say(ctx, channel.Line{Version: channel.Version, Config: config})
	switch {
	case err != nil:
	case l.Error != nil:
		err = errorOf(l.Error)
	case !l.Ready:
		err = k.broken("it does not say that it is ready")
	}
	if err != nil {
		k.kill()
		return nil, err
	}
	return k, nil
}

// environment is what the program gets of ours: how to reach a network, and no key.
func environment(all []string) []string {
	keep := []string{"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GODEBUG", "GOCOVERDIR"}
	some := []string{}
	for _, kv := range all {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(keep, strings.ToUpper(name)) {
			some = append(some, kv)
		}
	}
	return some
}

// read hands on what the program says, until its end.
func (k *child) read(out io.Reader) {
	r := channel.NewReader(out)
	var err error
	for err == nil {
		var l channel.Line
		if l, err = r.Next(); err == nil {
			select {
			case k.lines <- l:
			case <-k.quit:
				err = io.EOF
			}
		}
	}
	if !errors.Is(err, io.EOF) { // it talks nonsense
		_ = k.cmd.Process.Kill() // it may be gone
	}
	_, _ = io.Copy(io.Discard, out) // so that it can end
	werr := k.cmd.Wait()
	if errors.Is(err, io.EOF) {
		err = werr
	}
	k.err = err
	close(k.exited)
	close(k.lines)
}

// say sends a line and waits for the next one that comes back.
func (k *child) say(ctx context.Context, l channel.Line) (channel.Line, error) {
	sent := make(chan error, 1)
	go func() { sent <- k.w.Write(l) }() // it blocks only when the program does not read, and then until its end
	for {
		select {
		case err := <-sent:
			if sent = nil; err != nil {
				return channel.Line{}, k.gone()
			}
		case l, ok := <-k.lines:
			if !ok {
				return l, k.gone()
			}
			return l, nil
		case <-ctx.Done():
			return channel.Line{}, context.Cause(ctx)
		}
	}
}

// gone says how the program ended.
func (k *child) gone() error {
	select {
	case <-k.quit:
		return errors.New("the client of the model is closed")
	default:
	}
	select {
	case <-k.exited:
	case <-time.After(closeTimeout):
		return k.broken("it closed its input")
	}
	what := "it ended"
	if k.err != nil {
		what = "it ended: " + k.err.Error()
	}
	return k.broken(what)
}

// broken says what is wrong with the program, with its last words.
func (k *child) broken(what string) error {
	if words := strings.TrimSpace(k.config.Redact(k.log.String())); words != "" {
		what += "; its last words are:\n" + words
	}
	return &Error{Kind: KindProtocol, Message: helper.Name + " does not work: " + what}
}

func errorOf(raw json.RawMessage) error {
	e := &Error{}
	if err := json.Unmarshal(raw, e); err != nil {
		return fmt.Errorf("%s tells an error that makes no sense: %w", helper.Name, err)
	}
	return e
}

// Answer implements [Client].
func (k *child) Answer(ctx context.Context, r Request, delta func(text string)) (Answer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	if len(body) > maxRequest {
		return Answer{}, &Error{Kind: KindTooLong, Message: fmt.Sprintf("the conversation is %d MiB long, and at most %d", len(body)>>20, maxRequest>>20)}
	}
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	case <-k.quit:
		return Answer{}, k.gone()
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	k.id++
	l, err := k.say(ctx, channel.Line{ID: k.id, Request: body})
	for err == nil {
		switch {
		case l.ID != k.id:
			err = k.broken(fmt.Sprintf("it answers request %d while %d is asked", l.ID, k.id))
			k.kill()
			return Answer{}, err
		case l.Answer != nil:
			var a Answer
			if err := json.Unmarshal(l.Answer, &a); err != nil {
				return Answer{}, k.broken("its answer makes no sense: " + err.Error())
			}
			return a, nil
		case l.Error != nil:
			return Answer{}, errorOf(l.Error)
		case delta != nil && ctx.Err() == nil:
			delta(l.Delta)
		}
		l, err = k.hear(ctx)
	}
	if ctx.Err() != nil {
		k.giveUp()
	}
	return Answer{}, err
}

// hear waits for the next line.
func (k *child) hear(ctx context.Context) (channel.Line, error) {
	select {
	case l, ok := <-k.lines:
		if !ok {
			return l, k.gone()
		}
		return l, nil
	case <-ctx.Done():
		return channel.Line{}, context.Cause(ctx)
	}
}

// giveUp tells the program to let go of the request, and ends it when it does not.
func (k *child) giveUp() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	l, err := k.say(ctx, channel.Line{ID: k.id, Cancel: true})
	for err == nil && (l.ID != k.id || l.Answer == nil && l.Error == nil) {
		l, err = k.hear(ctx)
	}
	if err != nil {
		k.kill()
	}
}

// kill ends the program now.
func (k *child) kill() {
	k.closing.Do(func() { close(k.quit) })
	_ = k.cmd.Process.Kill() // it may be gone
	_ = k.in.Close()         // it is of no use any more
	<-k.exited
	k.log.close()
}

// Close implements [Client]. Requests that are being answered end with an error.
func (k *child) Close() error {
	k.closing.Do(func() { close(k.quit) })
	_ = k.in.Close() // which is the signal to end
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-k.exited:
	case <-t.C:
		_ = k.cmd.Process.Kill() // it may be gone by now
		<-k.exited
	}
	k.log.close()
	return nil
}

// lastWords keeps the end of what is written to it, and passes all of it on to a file.
type lastWords struct {
	mu   sync.Mutex
	b    []byte
	file *os.File // nil is none
}

// Write implements [io.Writer]. A disk that is full must not stop a model.
func (w *lastWords) Write(p []byte) (int, error) {
	const most = 4 << 10
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	if len(w.b) > most {
		w.b = bytes.Clone(w.b[len(w.b)-most:])
	}
	if w.file != nil {
		_, _ = w.file.Write(p) // see above
	}
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

func (w *lastWords) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		_ = w.file.Close() // see Write
		w.file = nil
	}
}
