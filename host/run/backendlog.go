package run

import (
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/store"
)

// keepBackendLog is how much of what a backend says during a run is kept: its end.
const keepBackendLog = 1 << 20

// backendLog is what the backend says about a run's sandboxes, or about none, while the run lasts. Most backends say
// nothing, so the file is made for the first line.
type backendLog struct {
	j    *job
	mu   sync.Mutex
	w    *store.LogWriter
	err  error
	once sync.Once
	box  string // id of a sandbox that was made ahead of the run
}

// sandbox says that the run uses a sandbox of another id than its own.
func (l *backendLog) sandbox(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.box = id
}

// listen begins to record what b says; the function it returns ends that.
func (j *job) listen(b *backend.Backend) (stop func()) {
	if j.said == nil {
		j.said = &backendLog{j: j}
	}
	return b.Tap(j.said.line)
}

// close ends the file; nothing is recorded any more.
func (l *backendLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w != nil && l.err == nil {
		l.err = l.w.Close()
	}
	l.j.note(l.err, "record what the backend said")
}

func (l *backendLog) line(line backend.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line.Sandbox != "" && line.Sandbox != l.j.id && line.Sandbox != l.box && line.Sandbox != l.j.depsID() {
		return
	}
	l.once.Do(func() { l.w, l.err = l.j.rec.OpenLog(store.BackendLog, keepBackendLog) })
	if l.err != nil {
		return
	}
	text := time.Now().UTC().Format(time.RFC3339Nano) + " " + line.Level.String() + " " +
		l.j.secrets.Text(line.String()) + "\n"
	_, l.err = l.w.Write([]byte(text))
}

// depsID is the id of the sandbox in which dependencies are installed.
func (j *job) depsID() string { return j.id + "-deps" }
