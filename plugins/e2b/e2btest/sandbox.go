package e2btest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"os"
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
	end     time.Time // when its time is over
	timer   *time.Timer
	box     *box // nil while paused without memory, and when gone
	samples []metric
	streams context.Context    // of clients; ends when the sandbox is paused or ended
	cut     context.CancelFunc // ends it
}

func newID() string {
	return "i" + strings.ToLower(rand.Text()[:20])
}

// init returns what the daemon has to know.
func (b *sandbox) init() daemon.Init {
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": b.id, "E2B_TEMPLATE_ID": b.request.TemplateID}
	maps.Copy(env, b.request.EnvVars)
	return daemon.Init{EnvVars: env, AccessToken: b.token, DefaultUser: "user", DefaultWorkdir: "/home/user"}
}

// boot starts the sandbox on the files it has. mu is held.
func (b *sandbox) boot(ctx context.Context) error {
	internet := b.request.Internet == nil || *b.request.Internet
	box, err := startBox(ctx, b.server.bwrap, b.dir, internet && b.server.opts.HostNetwork, b.init())
	if err != nil {
		return err
	}
	b.box, b.state = box, Running
	b.streams, b.cut = context.WithCancel(context.Background())
	go func() { // its daemon may die by itself, and then the sandbox is lost
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

// live sets the sandbox to end at the given time. mu is held.
func (b *sandbox) live(until time.Time) {
	b.end = until
	if b.timer != nil {
		b.timer.Stop()
	}
	b.timer = time.AfterFunc(time.Until(until), b.timeUp)
}

// timeUp ends or pauses the sandbox when its time is over.
func (b *sandbox) timeUp() {
	b.mu.Lock()
	if b.state != Running || time.Now().Before(b.end) { // paused, or given more time at the last moment
		b.mu.Unlock()
		return
	}
	if b.request.AutoPause {
		defer b.mu.Unlock()
		b.pause(b.request.AutoPauseMemory == nil || *b.request.AutoPauseMemory)
		return
	}
	b.mu.Unlock()
	_ = b.finish()
}

// pause stops a running sandbox, with or without what it has in memory. mu is held.
func (b *sandbox) pause(memory bool) {
	b.timer.Stop()
	b.state = Paused
	b.sample()
	b.cut()
	if memory && b.box.call(context.Background(), "/freeze", b.init()) == nil {
		return
	}
	box := b.box
	b.box = nil
	box.kill()
}

// resume lets a paused sandbox go on until the given time. mu is held.
func (b *sandbox) resume(ctx context.Context, memory bool, until time.Time) error {
	if box := b.box; box != nil && memory {
		if err := box.call(ctx, "/unfreeze", b.init()); err != nil {
			return err
		}
		b.state = Running
		b.streams, b.cut = context.WithCancel(context.Background())
	} else {
		if box != nil {
			b.box = nil
			box.kill()
		}
		if err := b.boot(ctx); err != nil {
			return err
		}
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

// sample asks the daemon how much the sandbox uses, and keeps the answer. mu is held.
func (b *sandbox) sample() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envd/metrics", nil)
	if err != nil {
		return
	}
	req.Header.Set("X-Access-Token", b.token)
	res, err := b.box.client.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	var m daemon.Metrics
	if res.StatusCode != http.StatusOK || json.NewDecoder(res.Body).Decode(&m) != nil {
		return
	}
	const kept = 1000
	b.samples = append(b.samples[max(0, len(b.samples)-kept):], metric{
		Timestamp: time.Unix(m.Timestamp, 0).UTC(), TimestampUnix: m.Timestamp, CPUCount: m.CPUCount, CPUUsedPct: m.CPUUsedPct,
		MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	})
}

// listed describes the sandbox. mu is held.
func (b *sandbox) listed() listed {
	return listed{
		TemplateID: b.request.TemplateID, SandboxID: b.id, ClientID: "e2btest", StartedAt: b.started.UTC(), EndAt: b.end.UTC(),
		CPUCount: 2, MemoryMB: 512, DiskSizeMB: 1024, State: b.state, EnvdVersion: daemon.Version, Metadata: b.request.Metadata,
		VolumeMounts: []struct{}{},
	}
}

// handle says how to reach the sandbox.
func (b *sandbox) handle() handle {
	return handle{TemplateID: b.request.TemplateID, SandboxID: b.id, ClientID: "e2btest", EnvdVersion: daemon.Version, EnvdAccessToken: b.token}
}

// State is what a test wants to know of a sandbox.
type State struct {
	ID       string
	State    string // Running or Paused
	Template string
	Metadata map[string]string
	EnvVars  map[string]string // as they were sent
	Internet *bool             // as it was sent
	Secure   bool
	Started  time.Time
	End      time.Time // when its time is over; past, for a paused one
	Root     string    // its root directory on the host, /usr excepted
}

// Sandboxes returns the sandboxes that have not ended, in no order.
func (s *Server) Sandboxes() []State {
	s.mu.Lock()
	var all []*sandbox
	for _, b := range s.sandboxes {
		all = append(all, b)
	}
	s.mu.Unlock()
	var out []State
	for _, b := range all {
		b.mu.Lock()
		if b.state == Running || b.state == Paused {
			out = append(out, State{
				ID: b.id, State: b.state, Template: b.request.TemplateID, Metadata: maps.Clone(b.request.Metadata), EnvVars: maps.Clone(b.request.EnvVars),
				Internet: b.request.Internet, Secure: b.token != "", Started: b.started, End: b.end, Root: filepath.Join(b.dir, "root"),
			})
		}
		b.mu.Unlock()
	}
	return out
}

// Kill ends a sandbox as the service does when its time is over. One that is not there is an error.
func (s *Server) Kill(id string) error {
	b := s.find(id)
	if b == nil {
		return noSandbox(id)
	}
	return b.finish()
}

// DaemonLog returns what the daemon of a sandbox has logged and E2B's would have sent to its makers: every request,
// with arguments, environment and input. It is empty when the sandbox has ended.
func (s *Server) DaemonLog(id string) string {
	b := s.find(id)
	if b == nil {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "envd.log"))
	if err != nil {
		return ""
	}
	return string(text)
}

// find returns a sandbox that has not ended, or nil.
func (s *Server) find(id string) *sandbox {
	id, _, _ = strings.Cut(id, "-") // an old form has the client's id behind it
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandboxes[id]
}
