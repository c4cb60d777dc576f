package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/atomicfile"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// Where things are in a machine.
const (
	workspacePath = guestpath.Workspace
	basePath      = "/var/lib/hutch" // what hutch itself keeps there
)

// rootUser is who does what commands may not.
const rootUser = "root"

// sandbox is one sandbox of this process.
type sandbox struct {
	backend  *backend
	id       string
	owner    string
	dir      string // its state directory
	spec     sdk.Spec
	keep     bool
	key      string
	at       place
	ready    sdk.Ready
	doubt    bool // a machine may exist whose creation was not answered
	never    bool // none was made, and that is certain
	progress func(step string, done, total int64)
	base     *base        // what the workspace was made from
	users    sync.Map     // those for whose commands there is a place
	kills    atomic.Int64 // of the machine's kernel, for want of memory

	mu          sync.Mutex
	daemon      *envd.Client // nil while there is no connection
	stopKeeping func()
	gone        bool
}

// client speaks to the control plane.
func (s *sandbox) client() *control.Client {
	c := control.New(s.at.API, s.key, s.backend.transport)
	c.Sleep = s.backend.sleep
	return c
}

// make makes the machine and fills it. It calls allocated as soon as the machine has a name.
func (s *sandbox) make(ctx context.Context, allocated func() error) error {
	s.report("making a machine", 0, 0)
	m, err := s.makeMachine(ctx)
	if err != nil {
		return err
	}
	s.at.Machine = m.ID
	if err := allocated(); err != nil {
		return err
	}
	if _, err := s.adopt(m); err != nil {
		return err
	}
	d, err := s.client().Get(ctx, m.ID)
	if err != nil {
		return typed(err, "look at the machine")
	}
	has := sizeOf(d) // which may differ from what the block declares
	if configOf(&s.spec).Disk == 0 {
		has.disk = 0 // as in the plan
	}
	holds := planLimits(s.spec.Limits, configOf(&s.spec), has)
	var refused *sdk.Error
	if errors.As(holds.Err(), &refused) {
		refused.Summary += "; the service says so, whatever the backend block declares"
		return refused
	}
	s.ready.Holds, s.ready.Notes = holds, append(notes(&s.spec), holds.Notes()...)
	if err := s.push(ctx); err != nil {
		return err
	}
	return s.save()
}

func (s *sandbox) report(step string, done, total int64) {
	if s.progress != nil {
		s.progress(step, done, total)
	}
}

// Ready implements [sdk.Sandbox].
func (s *sandbox) Ready() sdk.Ready { return s.ready }

// close removes the machine. It may be called twice.
func (s *sandbox) close(ctx context.Context) error {
	s.mu.Lock()
	done := s.gone
	s.gone = true
	s.mu.Unlock()
	s.disconnect()
	if done {
		return nil
	}
	err := s.deleteMachine(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = err == nil
	return err
}

// Inspect implements [sdk.Inspector].
func (s *sandbox) Inspect(ctx context.Context) (sdk.Status, error) {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if gone {
		return sdk.Status{State: sdk.StateGone}, nil
	}
	d, err := s.client().Get(ctx, s.at.Machine)
	if err != nil {
		return sdk.Status{}, typed(err, "look at the machine")
	}
	size := sizeOf(d)
	details := map[string]string{
		"machine": d.ID, "template": d.Template, "service": s.at.API, "state": d.State,
		"cpus": fmt.Sprint(d.CPUs), "memory": size.memory.String(), "disk": size.disk.String(),
	}
	if !d.EndAt.IsZero() {
		details["until"] = d.EndAt.UTC().Format("2006-01-02 15:04:05Z")
	}
	return sdk.Status{State: stateOf(d), Details: details}, nil
}

// saved is what another process needs to go on with a persistent sandbox. The API key is not in it, and neither is the
// machine's access token, which the service returns for the key.
type saved struct {
	Owner string
	Spec  sdk.Spec
	Ready sdk.Ready
	Base  *base
}

const savedName = "e2b.json"

// save writes down what the sandbox is, whole or not at all.
func (s *sandbox) save() error {
	cfg := *configOf(&s.spec)
	cfg.APIKey = ""
	spec := s.spec
	spec.Config = &cfg
	data, err := json.Marshal(saved{s.owner, spec, s.ready, s.base})
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(s.dir, savedName), data, 0o600, false)
}

// load reads what save wrote.
func (s *sandbox) load() error {
	data, err := os.ReadFile(filepath.Join(s.dir, savedName))
	if err != nil {
		return sdk.Errorf(sdk.ReasonNotFound, "what was written down of the sandbox %s is not there: %w", s.id, err)
	}
	k := &saved{Spec: sdk.Spec{Config: &Config{}}}
	err = json.Unmarshal(data, k)
	if err == nil && (k.Spec.Config == nil || k.Base == nil) {
		err = errors.New("it has no configuration or no base")
	}
	if err != nil {
		return fmt.Errorf("what was written down of the sandbox %s cannot be read: %w", s.id, err)
	}
	s.owner, s.spec, s.ready, s.base = k.Owner, k.Spec, k.Ready, k.Base
	return nil
}

// scriptError is a script that ended with another code than 0.
type scriptError struct {
	what   string
	code   int
	stderr string
}

// Error implements the error interface.
func (e *scriptError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("%s: the machine's shell ended with %d", e.what, e.code)
	}
	return fmt.Sprintf("%s: %s", e.what, e.stderr)
}

var errLostAnswer = errors.New("the connection broke, and a part of the answer was lost")

// repeated asks again what may be asked twice, when the answer was lost with the connection.
func (s *sandbox) repeated(ctx context.Context, ask func() error) error {
	for n := 1; ; n++ {
		err := ask()
		if !errors.Is(err, errLostAnswer) || n == 3 || s.backend.sleep(ctx, lookAgain[n]) != nil {
			return err
		}
	}
}

// sh runs a script in the machine, as user, and passes what it prints to out, which may be nil.
func (s *sandbox) sh(ctx context.Context, what, user, script string, out func([]byte) error, args ...string) error {
	d, err := s.connect(ctx)
	if err != nil {
		return err
	}
	var words strings.Builder
	end, err := d.Run(ctx, envd.Command{User: user, Path: "/bin/sh",
		Args: append([]string{"-c", script, "hutch"}, args...), Dir: "/"},
		envd.Events{Output: func(from envd.Source, b []byte) error {
			switch {
			case from == envd.Stderr && words.Len() < 2000:
				words.Write(b)
			case from == envd.Stdout && out != nil:
				return out(b)
			}
			return nil
		}})
	if err != nil {
		s.lost(err)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return typed(err, what)
	}
	if end.Breaks > 0 && out != nil {
		return sdk.Errorf(sdk.ReasonUnavailable, "%s: %w", what, errLostAnswer).WithFix("try again")
	}
	if !end.Exited || end.Code != 0 {
		code := end.Code
		if !end.Exited {
			code = -1
		}
		return &scriptError{what, code, oneLine(words.String())}
	}
	return nil
}

// oneLine makes what a machine said fit for a message.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	return plaintext.Line(strings.Join(lines, "; "), 600)
}
