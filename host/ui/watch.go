package ui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/store"
)

const (
	lookEvery  = 500 * time.Millisecond // or less often, so that a tenth of the time is spent on it
	maxWatched = 2000                   // files of a workspace whose changes are noticed by themselves
	maxRuns    = 100                    // newest runs that are shown and watched
	maxWindows = 64
)

// watch notices that something changed on disk, whichever process did it, while somebody listens.
type watch struct {
	sign func(context.Context) string

	mu      sync.Mutex
	windows map[chan string]bool
	joined  chan struct{} // has a value when a window came
	version string
}

func newWatch(sign func(context.Context) string) *watch {
	return &watch{sign: sign, windows: map[chan string]bool{}, joined: make(chan struct{}, 1)}
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	for {
		pause := time.Duration(-1)
		if w.listening() {
			begun := time.Now()
			w.tell(w.sign(ctx))
			pause = min(max(lookEvery, 9*time.Since(begun)), maxAge)
		}
		if !w.wait(ctx, pause) {
			return
		}
	}
}

// listening reports whether a window is open.
func (w *watch) listening() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.windows) > 0
}

// wait waits for a pause, or for a window when it is negative.
func (w *watch) wait(ctx context.Context, pause time.Duration) bool {
	var over <-chan time.Time
	if pause >= 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-over:
	case <-w.joined:
	}
	return true
}

func (w *watch) tell(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if version == w.version {
		return
	}
	w.version = version
	for c := range w.windows {
		select {
		case <-c: // an older version that nobody took
		default:
		}
		c <- version
	}
}

// join adds a window; nil when there are too many.
func (w *watch) join() chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.windows) >= maxWindows {
		return nil
	}
	c := make(chan string, 1)
	w.windows[c] = true
	if w.version != "" && len(w.windows) > 1 {
		c <- w.version
	} else {
		w.version = "" // nobody looked for a while
	}
	select {
	case w.joined <- struct{}{}:
	default:
	}
	return c
}

func (w *watch) leave(c chan string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.windows, c)
}

// events sends a page the version of what it should show: at once, and whenever that changes.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	c := s.watch.join()
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
	for {
		text := ":\n\n"
		select {
		case <-r.Context().Done():
			return
		case v := <-c:
			text = "data: " + v + "\n\n"
		case <-alive.C:
		}
		if _, err := w.Write([]byte(text)); err != nil || flush() != nil {
			return
		}
	}
}

// signature changes when a sandbox, what it wrote, its side of the project, or one of the newest runs changes. It takes
// no lock and asks no backend: what only a backend knows, such as files in a cloud machine, shows when a record
// changes.
func signature(ctx context.Context, st *store.Store) string {
	h := sha256.New()
	boxes, err := st.Sandboxes()
	_, _ = fmt.Fprintln(h, err)
	_ = json.NewEncoder(h).Encode(boxes)
	for _, b := range boxes {
		stat(h, filepath.Join(st.Paths().Sandbox(b.ID), "events.jsonl"))
		if l := b.Workspace.Layers; l != nil && l.Upper != "" {
			written(ctx, h, l.Upper, b.Workspace.Source)
		}
	}
	runs, err := st.List(store.Filter{Limit: maxRuns})
	_, _ = fmt.Fprintln(h, err)
	_ = json.NewEncoder(h).Encode(runs)
	for _, r := range runs {
		if r.State == store.StateRunning {
			written(ctx, h, st.Paths().Run(r.ID), "")
		}
	}
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
