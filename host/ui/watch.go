package ui

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hutch-run/hutch/host/store"
)

const (
	lookEvery  = 500 * time.Millisecond // or less often, so that a tenth of the time is spent on it
	maxPause   = 10 * time.Millisecond  // between two overviews, so that a slow one does not hold up the next
	maxWatched = 2000                   // files of a workspace whose changes are noticed by themselves
	maxRuns    = 100                    // newest runs that are shown and watched
	maxWindows = 64
	linger     = 5 * time.Second // after the last window closed: another page of it may be on its way
)

// watch notices that something changed, whichever process did it, while somebody listens. Changes of records come from
// the kernel at once. Workspaces, and what only a backend knows, are looked at again and again.
type watch struct {
	mu      sync.Mutex
	windows map[*window]bool
	left    time.Time     // when the last window was closed
	again   chan struct{} // has a value when the overview is to be made again
	nudge   chan struct{} // has a value when the sandboxes are to be looked at again
	version string        // of the overview; "" when nobody looked for a while
}

// window is a page that listens.
type window struct {
	run  string        // that it shows; "" for none
	box  string        // that it shows; "" for none
	poke chan struct{} // has a value when it may have to be shown again
}

func newWatch() *watch {
	return &watch{windows: map[*window]bool{}, again: make(chan struct{}, 1), nudge: make(chan struct{}, 1)}
}

// raise puts a value into a channel that has room for one.
func raise(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listening reports whether a window is open, or was a moment ago.
func (w *watch) listening() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open()
}

func (w *watch) open() bool { return len(w.windows) > 0 || time.Since(w.left) < linger }

// tell says which overview there is now.
func (w *watch) tell(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if version == w.version {
		return
	}
	w.version = version
	for v := range w.windows {
		raise(v.poke)
	}
}

// wrote says that a run wrote something.
func (w *watch) wrote(run string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v := range w.windows {
		if v.run == run {
			raise(v.poke)
		}
	}
}

// join adds a window; nil when there are too many.
func (w *watch) join(run, box string) *window {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.windows) >= maxWindows {
		return nil
	}
	if !w.open() {
		w.version = "" // nobody looked for a while
	}
	v := &window{run: run, box: box, poke: make(chan struct{}, 1)}
	w.windows[v] = true
	raise(v.poke)
	raise(w.again)
	raise(w.nudge)
	return v
}

func (w *watch) leave(v *window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.windows, v)
	w.left = time.Now()
}

// current is the version that a window should show; "" when that is about to be found out.
func (s *Server) current(v *window) string {
	s.watch.mu.Lock()
	version := s.watch.version
	s.watch.mu.Unlock()
	switch {
	case version == "":
		return ""
	case v.run != "":
		return version + "." + s.progress(v.run)
	case v.box != "":
		s.latest.mu.Lock()
		defer s.latest.mu.Unlock()
		return cmp.Or(s.latest.view.of(v.box), version)
	}
	return version
}

// progress changes when a run writes something.
func (s *Server) progress(run string) string {
	h, dir := sha256.New(), s.store.Paths().Run(run)
	list, err := os.ReadDir(dir) // logs may be in several parts
	_, _ = fmt.Fprintln(h, err)
	for _, e := range list {
		if !e.IsDir() {
			stat(h, filepath.Join(dir, e.Name()))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// events sends a page the version of what it should show: at once, and whenever that changes.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	run := r.URL.Query().Get("run")
	if _, err := s.store.Load(run); err != nil {
		run = ""
	}
	c := s.watch.join(run, r.URL.Query().Get("box"))
	if c == nil {
		refuse(w, http.StatusServiceUnavailable, "too many windows are open")
		return
	}
	defer s.watch.leave(c)
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return
	}
	alive := time.NewTicker(20 * time.Second)
	defer alive.Stop()
	for last := ""; ; {
		text := ":\n\n"
		select {
		case <-r.Context().Done():
			return
		case <-c.poke:
			v := s.current(c)
			if v == "" || v == last {
				continue
			}
			last, text = v, "data: "+v+"\n\n"
		case <-alive.C:
		}
		if _, err := w.Write([]byte(text)); err != nil || flush() != nil {
			return
		}
	}
}

// watchRecords makes the overview again when a record changed, until ctx ends.
func (s *Server) watchRecords(ctx context.Context) {
	n := newNotifier(s.store.Paths())
	defer n.close()
	go func() { // output does not wait for an overview
		for e := range n.events {
			run, ok := n.output(e)
			if ok {
				s.watch.wrote(run)
			}
			if ok && filepath.Base(e.Name) == "events.jsonl" { // perhaps the network decided
				raise(s.watch.again)
			} else if !ok && !strings.HasPrefix(filepath.Base(e.Name), ".") { // not a temporary file
				raise(s.watch.again)
			}
		}
	}()
	for sign := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.watch.again:
		}
		if !s.watch.listening() {
			n.follow(records{})
			continue
		}
		begun := time.Now()
		rec := s.records()
		n.follow(rec)
		s.watch.tell(s.build(rec).Version)
		if rec.sign != sign {
			sign = rec.sign
			raise(s.watch.nudge)
		}
		sleep(ctx, min(time.Since(begun), maxPause)) // half of the time is spent on this, unless the machine is slow
	}
}

// watchSandboxes looks at all sandboxes again and again, until ctx ends.
func (s *Server) watchSandboxes(ctx context.Context) {
	for pause := time.Duration(0); ; {
		var over <-chan time.Time
		if s.watch.listening() {
			over = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-over:
		case <-s.watch.nudge:
		}
		if !s.watch.listening() {
			continue
		}
		begun := time.Now()
		s.look(ctx, s.records().boxes, false)
		pause = min(max(lookEvery, 9*time.Since(begun)), maxAge)
		raise(s.watch.again)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// notifier has the kernel say what changes in the records. Where it cannot, everything is looked at every so often.
type notifier struct {
	*fsnotify.Watcher // nil where the kernel has no room
	events            chan fsnotify.Event
	paths             store.Paths
	dirs              map[string]bool
}

func newNotifier(p store.Paths) *notifier {
	n := &notifier{paths: p, dirs: map[string]bool{}, events: make(chan fsnotify.Event)}
	w, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		close(n.events)
	} else {
		n.Watcher, n.events = w, w.Events
		go func() {
			for range w.Errors { // what was missed is seen at the next look
			}
		}()
	}
	return n
}

func (n *notifier) close() {
	if n.Watcher != nil {
		_ = n.Close()
	}
}

// output is the run that wrote something, for what does not show elsewhere. A run that has ended makes its chain
// read-only.
func (n *notifier) output(e fsnotify.Event) (run string, ok bool) {
	dir, name := filepath.Split(e.Name)
	dir = filepath.Clean(dir)
	if filepath.Dir(dir) != n.paths.Runs() || name == "events.jsonl" && e.Has(fsnotify.Chmod) {
		return "", false
	}
	return filepath.Base(dir), true
}

// follow has the kernel report changes of these records, and of no others.
func (n *notifier) follow(r records) {
	if n.Watcher == nil {
		return
	}
	want := map[string]bool{}
	if r.sign != "" {
		want[n.paths.Runs()], want[n.paths.Sandboxes()] = true, true
	}
	for _, b := range r.boxes {
		want[n.paths.Sandbox(b.ID)] = true
	}
	for _, i := range r.runs {
		if i.State == store.StateRunning {
			want[n.paths.Run(i.ID)] = true
		}
	}
	for d := range n.dirs {
		if !want[d] {
			_ = n.Remove(d)
			delete(n.dirs, d)
		}
	}
	for d := range want {
		if !n.dirs[d] && n.Add(d) == nil {
			n.dirs[d] = true
		}
	}
}

// records are what the store has of all sandboxes and the newest runs. Reading them takes no lock.
type records struct {
	boxes   []store.SandboxInfo
	marks   []string // of each of boxes
	runs    []store.Info
	sign    string // changes with them
	problem string
}

func (s *Server) records() (r records) {
	var err, rerr error
	r.boxes, err = s.store.Sandboxes()
	r.runs, rerr = s.store.List(store.Filter{Limit: maxRuns})
	if err = errors.Join(err, rerr); err != nil {
		r.problem = err.Error()
	}
	h := sha256.New()
	for _, b := range r.boxes {
		r.marks = append(r.marks, s.recordSign(b))
	}
	for _, m := range r.marks {
		_, _ = fmt.Fprintln(h, m)
	}
	_ = json.NewEncoder(h).Encode(r.runs)
	_, works := s.works.now()
	_, _ = fmt.Fprintln(h, r.problem, works)
	r.sign = hex.EncodeToString(h.Sum(nil)[:8])
	return r
}

// recordSign changes when the record of a sandbox does.
func (s *Server) recordSign(b store.SandboxInfo) string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(b)
	stat(h, filepath.Join(s.store.Paths().Sandbox(b.ID), "events.jsonl"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// layerSign changes with what a sandbox wrote and the project's side of it, where both are on this host.
func layerSign(ctx context.Context, b store.SandboxInfo) string {
	l := b.Workspace.Layers
	if l == nil || l.Upper == "" {
		return ""
	}
	h := sha256.New()
	written(ctx, h, l.Upper, b.Workspace.Source)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// written takes in what lies below top, and beside each file the one of the project.
func written(ctx context.Context, h hash.Hash, top, project string) {
	n := 0
	_ = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if n++; n > maxWatched || ctx.Err() != nil {
			return fs.SkipAll
		}
		stat(h, p)
		if rel, rerr := filepath.Rel(top, p); rerr == nil && project != "" && rel != "." && err == nil && !d.IsDir() {
			stat(h, filepath.Join(project, rel))
		}
		return nil
	})
}

func stat(h hash.Hash, path string) {
	fi, err := os.Lstat(path)
	if err != nil {
		_, _ = fmt.Fprintln(h, path)
		return
	}
	_, _ = fmt.Fprintln(h, path, fi.Size(), fi.ModTime().UnixNano(), fi.Mode())
}
