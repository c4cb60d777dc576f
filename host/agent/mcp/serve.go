package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/agent/mcp/call"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
)

// EnvToken is the variable with the bearer token of HTTP's clients, where no file has it.
const EnvToken = "HUTCH_MCP_TOKEN"

// Serve does what a call asks for until its client hangs up, or ctx ends. note tells the user something.
func Serve(ctx context.Context, c *call.Call, note func(format string, args ...any)) (err error) {
	if c.RemoverOf != nil {
		awaitServer()
	}
	s, err := session.Open(session.Options{Version: c.Version, Executable: c.Hutch, Warn: func(line string) { note("%s", line) }})
	if err != nil {
		return err
	}
	closing := func(f func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, f(ctx))
	}
	defer closing(s.Close)
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	conf, err := s.Config()
	if err != nil {
		return err
	}
	manager := sandbox.Options{
		Run:     run.Options{Store: s.Store(), Backends: pool, MinIsolation: conf.MinIsolation, Environ: os.Environ(), TakeBase: review.WriteBase},
		Destroy: s.Destroy,
	}
	if c.RemoverOf != nil {
		return remove(sandbox.New(manager), *c.RemoverOf)
	}
	if self := store.Self(); !c.Keep {
		manager.Run.EndsWith = &self
	}
	o := Options{
		Version: c.Version, Backend: c.Backend, Workspaces: c.Workspaces, Network: c.Network, AllowHosts: c.AllowHosts, Limits: c.Limits, Sandboxes: c.Sandboxes, Keep: c.Keep,
		Allow: map[judge.Rule]bool{}, Manager: sandbox.New(manager),
	}
	if !c.Keep {
		o.Remover = sync.OnceValue(func() error { return startRemover(*c) })
	}
	if o.Backend == "" {
		o.Backend = conf.Backend
	}
	if o.Backend == "" {
		o.Backend = "bwrap"
	}
	for _, r := range c.Allow {
		o.Allow[r] = true
	}
	for _, name := range c.Sandboxes {
		if _, err := s.Store().FindSandbox(name); err != nil {
			return err
		}
	}
	if c.Apply {
		o.Ledger = review.NewLedger(s.Store().Paths().Applies(), s.Store())
	}
	server := New(o)
	defer closing(func(ctx context.Context) error {
		left, err := server.Close(ctx)
		if len(left) > 0 {
			note("left: %s", strings.Join(left, ", "))
		}
		return err
	})
	defer context.AfterFunc(ctx, func() {
		if !c.Keep {
			note("stopping; its sandboxes are removed, by another process of hutch if this one is killed")
		}
	})()
	if c.Listen == "" {
		return server.ServeStdio(ctx)
	}
	token, made, err := tokenOf(c)
	if err != nil {
		return err
	}
	l, err := Listen(c.Listen)
	if err != nil {
		return err
	}
	note("serving http://%s/mcp", l.Addr())
	if made {
		note("bearer token: %s", token)
	}
	return server.ServeHTTP(ctx, l, token)
}

// tokenOf is the token from its file or the environment, or a new one.
func tokenOf(c *call.Call) (token string, made bool, err error) {
	token, where := os.Getenv(EnvToken), EnvToken
	switch {
	case c.TokenFile != "":
		where = "--token-file " + c.TokenFile
		b, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return "", false, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(b))
	case token == "":
		return rand.Text(), true, nil
	}
	if len(token) < minToken {
		return "", false, fmt.Errorf("%s: the token has %d characters, and needs %d; head -c 24 /dev/urandom | base64 makes one", where, len(token), minToken)
	}
	return token, false, nil
}
