package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/sdk"
)

const daemonPort = envd.Port

// The metadata of a machine.
const (
	metaID    = "hutch-sandbox" // the sandbox, as the host calls it
	metaOwner = "hutch-owner"
	metaTag   = "hutch-tag" // no other machine has it
)

// oldestDaemon is the first version that takes files as a plain stream of bytes.
const oldestDaemon = "v0.5.7"

// cleanupTime bounds the removal of a machine, whatever became of the call that wanted it.
const cleanupTime = time.Minute

// lookAgain are the pauses before each search for a machine of which it is not known whether it was made.
var lookAgain = []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

func newTag() string { return strings.ToLower(rand.Text()) }

// makeMachine makes the machine of a sandbox. The call is not interrupted: a machine whose id is not known would cost
// until its timeout. When ctx ends meanwhile, the machine is deleted.
func (s *sandbox) makeMachine(ctx context.Context) (*control.Sandbox, error) {
	cfg := configOf(&s.spec)
	want := control.NewSandbox{
		Template: cfg.Template, Timeout: cfg.Timeout, Internet: s.spec.Network == sdk.NetworkFull, AutoPause: s.keep,
		Metadata: map[string]string{metaID: s.id, metaOwner: s.owner, metaTag: s.at.Tag},
	}
	safe, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*cleanupTime)
	defer cancel()
	m, err := s.client().Create(safe, want)
	for n := 0; n < 2 && doubtful(err) && ctx.Err() == nil; n++ {
		var found *control.Sandbox
		if found, err = s.lookFor(safe, err); found != nil || ctx.Err() != nil {
			m = found
			break
		}
		m, err = s.client().Create(safe, want)
	}
	s.never = m == nil && !s.doubt && !doubtful(err)
	if ctx.Err() != nil {
		s.doubt = s.doubt || doubtful(err)
		return nil, context.Cause(ctx) // the caller destroys what there is
	}
	if err != nil {
		return nil, typed(err, "make a machine")
	}
	return m, nil
}

// doubtful reports whether a machine may have been made although the call to make it failed.
func doubtful(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && !e.Unsent && (e.Unanswered || e.Kind() == control.Service)
}

// lookFor looks for a machine of which it is not known whether it was made.
func (s *sandbox) lookFor(ctx context.Context, why error) (*control.Sandbox, error) {
	s.doubt = true
	for _, pause := range lookAgain {
		if err := s.backend.sleep(ctx, pause); err != nil {
			return nil, why
		}
		found, err := s.client().Find(ctx, map[string]string{metaTag: s.at.Tag})
		if err != nil {
			return nil, why
		}
		if len(found) > 0 {
			return s.client().Connect(ctx, found[0].ID, configOf(&s.spec).Timeout)
		}
	}
	return nil, why
}

// connect returns the client of the machine's daemon. A machine that is paused is resumed by that.
func (s *sandbox) connect(ctx context.Context) (*envd.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone:
		return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
	case s.daemon != nil:
		return s.daemon, nil
	}
	m, err := s.client().Connect(ctx, s.at.Machine, configOf(&s.spec).Timeout)
	if err != nil {
		return nil, typed(err, "reach the machine")
	}
	return s.adopt(m)
}

// adopt makes a machine that runs the sandbox's. The caller holds s.mu, or has the only reference to the sandbox.
func (s *sandbox) adopt(m *control.Sandbox) (*envd.Client, error) {
	if v := "v" + m.EnvdVersion; semver.IsValid(v) && semver.Compare(v, oldestDaemon) < 0 {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the template's daemon has version %.40q, and files can be sent from %s on",
			m.EnvdVersion, oldestDaemon[1:]).
			WithFix("build the template again: that brings a newer daemon into it")
	}
	s.daemon = envd.New(envd.Address{URL: s.at.service(s.key).daemonURL(m.ID, m.Domain), ID: m.ID, Token: m.AccessToken},
		s.backend.transport)
	if s.stopKeeping == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.stopKeeping = cancel
		go s.keepAlive(ctx)
	}
	return s.daemon, nil
}

// keepAlive extends the machine's time again and again.
func (s *sandbox) keepAlive(ctx context.Context) {
	timeout := configOf(&s.spec).Timeout
	tick := time.NewTicker(timeout / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(ctx, timeout/3)
		err := s.client().Extend(call, s.at.Machine, timeout)
		cancel()
		var e *control.Error
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.As(err, &e) && e.Kind() == control.Gone:
			sdk.Logger().Warn("the service says that the sandbox's machine is not there any more", "sandbox", s.id)
			return
		default:
			sdk.Logger().Warn("the machine's time could not be extended", "sandbox", s.id, "error", err)
		}
	}
}

// lost forgets the connection to a machine that does not run any more, so that the next call looks for it again: a
// persistent one may only be paused.
func (s *sandbox) lost(err error) {
	if !envd.Gone(err) {
		return
	}
	s.disconnect()
}

// deleteMachine ends the machine, and any whose creation was not answered.
func (s *sandbox) deleteMachine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	var errs []error
	if s.at.Machine != "" {
		errs = append(errs, s.client().Delete(ctx, s.at.Machine))
	}
	if s.at.Machine == "" || s.doubt {
		found, err := s.client().Find(ctx, map[string]string{metaTag: s.at.Tag})
		errs = append(errs, err)
		for _, d := range found {
			errs = append(errs, s.client().Delete(ctx, d.ID))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return typed(err, "remove the machine "+cmp.Or(s.at.Machine, "of "+s.id))
	}
	return nil
}
