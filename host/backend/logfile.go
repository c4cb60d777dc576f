package backend

import (
	"os"
	"path/filepath"
	"sync"
	"time"
)

// rotateLog is the size above which a log becomes the old one when it is opened again.
const rotateLog = 8 << 20

// logFile is the file with all that the processes of one backend write on stderr. Most of them write nothing: it is
// made for the first byte. The one before it is kept beside it, as NAME.log.old.
type logFile struct {
	path string // "" keeps none

	mu     sync.Mutex
	f      *os.File
	failed bool
	begun  chan struct{} // closed at the first byte, or when there will be none
}

func newLogFile(path string) *logFile { return &logFile{path: path, begun: make(chan struct{})} }

// Write implements [io.Writer]; a disk that is full, or cannot be written, must not stop the backend.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || l.failed || len(b) == 0 {
		return len(b), nil
	}
	if l.f == nil {
		defer close(l.begun)
		if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
			l.failed = true
			return len(b), nil
		}
		if st, err := os.Lstat(l.path); err == nil && st.Size() > rotateLog {
			_ = os.Rename(l.path, l.path+".old")
		}
		f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			l.failed = true
			return len(b), nil
		}
		l.f = f
	}
	_, _ = l.f.Write(b)
	return len(b), nil
}

// name is the path of the file, "" while nothing was written.
func (l *logFile) name() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return ""
	}
	return l.path
}

// soon is name, but waits up to d for the first byte: what a backend wrote before it answered may still be on its way.
func (l *logFile) soon(d time.Duration) string {
	if l.path == "" {
		return ""
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.begun:
	case <-t.C:
	}
	return l.name()
}

// close ends writing; the name stays.
func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		l.f.Close()
	} else if !l.failed && l.path != "" {
		close(l.begun)
	}
	l.failed = true
}
