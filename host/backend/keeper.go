package backend

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/sdk/client"
)

// Keeper keeps backends running between the pools of a process that executes one command after another. A pool takes a
// backend from it instead of starting one, after all checks of the program, where the same program would get the same
// environment and options. A nil Keeper keeps none. Its methods may be called concurrently.
type Keeper struct {
	dir string

	mu      sync.Mutex
	idle    map[string]*Backend // by name
	refuses bool
}

// NewKeeper returns a Keeper whose backends have their sockets in dir, as [Options.Dir].
func NewKeeper(dir string) *Keeper { return &Keeper{dir: dir, idle: map[string]*Backend{}} }

// Dir is the directory of the sockets.
func (k *Keeper) Dir() string { return k.dir }

// Refuse has backends stopped from now on as they are without a Keeper, because something went wrong.
func (k *Keeper) Refuse() {
	if k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.refuses = true
	}
}

// Refuses reports whether Refuse was called.
func (k *Keeper) Refuses() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refuses
}

// Drop stops the idle backends.
func (k *Keeper) Drop(ctx context.Context) {
	k.mu.Lock()
	idle := k.idle
	k.idle = map[string]*Backend{}
	k.mu.Unlock()
	for _, b := range idle {
		_ = b.stop(ctx)
	}
}

// keptKey has everything in which two launches of a program can differ, but for who listens to it.
func (p *Pool) keptKey(bin *binary, env []string) string {
	return fmt.Sprintf("%s %s %s %v %v %v %v %s\n%s", bin.path, bin.sha256, p.opt.LogDir, p.opt.LogLevel,
		p.opt.CallTimeout, p.opt.StopTimeout, p.opt.Slack,
		p.opt.HostVersion, strings.Join(env, "\n"))
}

// take returns an idle backend for a pool, or nil. One that was started differently is stopped.
func (k *Keeper) take(name, key string, opt Options) *Backend {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	old := k.idle[name]
	delete(k.idle, name)
	k.mu.Unlock()
	switch {
	case old == nil:
		return nil
	case old.kept != key || !old.fit():
		go func() { _ = old.stop(context.Background()) }()
		return nil
	}
	b := &Backend{Name: name, Path: old.Path, SHA256: old.SHA256, PID: old.PID, proc: old.proc, started: old.started,
		conn: old.conn, opt: opt, kept: key}
	b.proc.logs.handOver(opt.Log)
	b.Client = client.New(b.conn, b.clientOptions())
	return b
}

// keep takes a backend that is not used any more, and reports whether it did.
func (k *Keeper) keep(b *Backend) bool {
	if k == nil || b.kept == "" || !b.fit() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuses || k.idle[b.Name] != nil {
		return false
	}
	b.proc.logs.handOver(nil)
	k.idle[b.Name] = b
	return true
}

// fit reports whether a backend runs and has failed in nothing.
func (b *Backend) fit() bool {
	select {
	case <-b.proc.exited:
		return false
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.failed && b.gaveUp == nil
}
