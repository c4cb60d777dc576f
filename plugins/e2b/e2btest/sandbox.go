package e2btest

import (
	"context"
	"crypto/rand"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest/internal/daemon"
)

// States of a sandbox, as they are on the wire. One that has ended is in none of them.
const (
	Running = "running"
	Paused  = "paused"
	gone    = "gone"
)

// sandbox is one that was made and has not ended. mu is held through a change of state, so that changes come one by
// one.
type sandbox struct {
	server  *Server
	id, dir string
	token   string // "" if it is not secure
	request newSandbox
	started time.Time

	mu      sync.Mutex
	state   string
	end     time.Time // of its timeout
	timer   *time.Timer
	box     *box               // nil while paused without memory, and when gone
	streams context.Context    // of clients; ends when the sandbox is paused or ended
	cut     context.CancelFunc // ends it
}

func newID() string {
	return "i" + strings.ToLower(rand.Text()[:20])
}

// boot starts the sandbox on the files it has. mu is held.
func (b *sandbox) boot(ctx context.Context) error {
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": b.id, "E2B_TEMPLATE_ID": b.request.TemplateID}
	maps.Copy(env, b.request.EnvVars)
	init := daemon.Init{EnvVars: env, AccessToken: b.token, DefaultUser: "user", DefaultWorkdir: "/home/user"}
	internet := b.request.Internet == nil || *b.request.Internet
	box, err := startBox(ctx, b.server.bwrap, b.dir, internet && b.server.opts.HostNetwork, init)
	if err != nil {
		return err
	}
	b.box, b.state = box, Running
	b.streams, b.cut = context.WithCancel(context.Background())
	go func() { // a daemon that ends by itself takes the sandbox with it
		<-box.gone
		b.mu.Lock()
		lost := b.box == box
		b.mu.Unlock()
		if lost {
			_ = b.finish()
		}
	}()
	return nil
}

// live sets the end of the sandbox's timeout. mu is held.
func (b *sandbox) live(until time.Time) {
	b.end = until
	if b.timer != nil {
		b.timer.Stop()
	}
	b.timer = time.AfterFunc(time.Until(until), b.timedOut)
}

// timedOut ends or pauses the sandbox.
func (b *sandbox) timedOut() {
	b.mu.Lock()
	if b.state != Running || time.Now().Before(b.end) { // paused, or extended at the last moment
		b.mu.Unlock()
		return
	}
	if b.request.AutoPause {
		defer b.mu.Unlock()
		b.pause(true)
		return
	}
	b.mu.Unlock()
	_ = b.finish()
}

// pause stops a running sandbox, with or without what it has in memory. mu is held.
func (b *sandbox) pause(memory bool) {
	b.timer.Stop()
	b.state = Paused
	b.cut()
	if memory && b.box.call(context.Background(), "/freeze", nil) == nil {
		return
	}
	box := b.box
	b.box = nil
	box.kill()
}

// resume lets a paused sandbox go on until the given time. mu is held.
func (b *sandbox) resume(ctx context.Context, until time.Time) error {
	if b.box == nil {
		if err := b.boot(ctx); err != nil {
			return err
		}
	} else {
		if err := b.box.call(ctx, "/unfreeze", nil); err != nil {
			return err
		}
		b.state = Running
		b.streams, b.cut = context.WithCancel(context.Background())
	}
	b.live(until)
	return nil
}

// finish ends the sandbox for good and forgets it.
func (b *sandbox) finish() error {
	b.server.mu.Lock()
	delete(b.server.sandboxes, b.id)
	b.server.mu.Unlock()
	return b.shut()
}

// shut ends the sandbox and removes its files. Only the first call does anything.
func (b *sandbox) shut() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == gone {
		return nil
	}
	b.state = gone
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.cut != nil {
		b.cut()
	}
	if box := b.box; box != nil {
		b.box = nil
		box.kill()
	}
	return removeAll(b.dir)
}

// State describes a sandbox to a test.
type State struct {
	ID       string
	State    string // Running or Paused
	Metadata map[string]string
	Root     string // its root directory on the host, /usr excepted
}

// Sandboxes returns the sandboxes that have not ended, in no order.
func (s *Server) Sandboxes() (out []State) {
	for _, b := range s.all() {
		b.mu.Lock()
		if b.state == Running || b.state == Paused {
			metadata := maps.Clone(b.request.Metadata)
			out = append(out, State{ID: b.id, State: b.state, Metadata: metadata, Root: filepath.Join(b.dir, "root")})
		}
		b.mu.Unlock()
	}
	return out
}

// find returns a sandbox that has not ended, or nil.
func (s *Server) find(id string) *sandbox {
	id, _, _ = strings.Cut(id, "-") // an old form has the client's id behind it
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandboxes[id]
}
