package backend

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hutch-run/hutch/host/termsafe"
)

const (
	mostLine  = 64 << 10 // bytes of one log line that are kept
	mostLog   = 64 << 20 // bytes of one process's log that are kept in its file
	lastLines = 20       // kept for the message about its death
	mostPairs = 64       // key-value pairs of one line
)

// logs reads what a plugin writes on stderr. go-plugin never sees it: one JSON
// line whose @message is no string would panic the host there. Every byte may be
// forged; so a line is never more than a line, is always attributed to the
// backend, and only a JSON line has a level.
type logs struct {
	backend string
	to      func(Line) // may be nil
	file    *logFile   // of all of them

	mu      sync.Mutex
	taps    map[*tap]struct{}
	last    []string
	crashed bool  // the last line without a level was of a Go program that crashed: what follows is its stack
	left    int64 // bytes that still fit the file
}

// Line is one line of a backend's log. All text in it is harmless on a terminal.
type Line struct {
	Backend string
	Sandbox string // the sandbox that it is about, "" when it names none
	Level   hclog.Level
	Message string
	Pairs   []string // key, value, key, value, …
}

// String is the line without its backend: message key=value ….
func (l Line) String() string {
	s := l.Message
	for i := 0; i+1 < len(l.Pairs); i += 2 {
		s += " " + l.Pairs[i] + "=" + termsafe.Line(l.Pairs[i+1])
	}
	return s
}

// tap is somebody who listens.
type tap struct{ f func(Line) }

func newLogs(backend string, to func(Line), file *logFile) *logs {
	return &logs{backend: backend, to: to, file: file, left: mostLog, taps: map[*tap]struct{}{}}
}

// tap calls f with every line from now on, one at a time, until stop has returned.
func (l *logs) tap(f func(Line)) (stop func()) {
	t := &tap{f}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taps[t] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.taps, t)
	}
}

// handOver has further lines go to another listener; what was said before is not about what it uses the backend for.
func (l *logs) handOver(to func(Line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to, l.last = to, nil
}

// read copies r until it ends.
func (l *logs) read(r io.Reader) {
	var line []byte
	cut := false
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		l.keep(buf[:n])
		for chunk := buf[:n]; len(chunk) > 0; {
			i := bytes.IndexByte(chunk, '\n')
			part, end := chunk, i >= 0
			if end {
				part = chunk[:i]
				chunk = chunk[i+1:]
			} else {
				chunk = nil
			}
			if room := mostLine - len(line); len(part) > room {
				part, cut = part[:room], true
			}
			line = append(line, part...)
			if end {
				l.line(line, cut)
				line, cut = line[:0], false
			}
		}
		if err != nil {
			if len(line) > 0 {
				l.line(line, cut)
			}
			return
		}
	}
}

// keep writes raw bytes to the file, up to the bound.
func (l *logs) keep(b []byte) {
	if l.left == 0 {
		return
	}
	if int64(len(b)) >= l.left {
		b = append(slices.Clone(b[:l.left]), "\n[hutch: the rest of this log was dropped]\n"...)
		l.left = 0
	} else {
		l.left -= int64(len(b))
	}
	_, _ = l.file.Write(b)
}

func (l *logs) line(b []byte, cut bool) {
	level, msg, pairs := parseLine(b)
	if cut {
		// It is no JSON any more, but its level must not be lost.
		level = levelOf(b)
		msg += " […]"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	stack := false
	if level == hclog.NoLevel {
		level = hclog.Info
		if stack = l.crashed; strings.HasPrefix(msg, "panic: ") || strings.HasPrefix(msg, "fatal error: ") {
			level, l.crashed = hclog.Error, true // of a Go program; the stack that follows is for the log
		}
	} else {
		l.crashed = false
	}
	line := Line{Backend: l.backend, Level: level, Message: msg, Pairs: pairs}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == "sandbox" {
			line.Sandbox = pairs[i+1]
		}
	}
	if !stack {
		if len(l.last) == lastLines {
			l.last = append(l.last[:0], l.last[1:]...)
		}
		l.last = append(l.last, line.String())
	}
	if l.to != nil {
		l.to(line)
	}
	for t := range l.taps {
		t.f(line)
	}
}

// lines returns the last lines, safe to show.
func (l *logs) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last)
}

// levelOf finds the level of an hclog line that was cut: it comes first.
func levelOf(b []byte) hclog.Level {
	rest, ok := bytes.CutPrefix(b, []byte(`{"@level":"`))
	name, _, ended := bytes.Cut(rest, []byte(`"`))
	if !ok || !ended {
		return hclog.NoLevel
	}
	if l := hclog.LevelFromString(string(name)); l != hclog.Off {
		return l
	}
	return hclog.NoLevel
}

// parseLine reads one line. What is not an hclog line in JSON has no level and is its own message.
func parseLine(b []byte) (hclog.Level, string, []string) {
	plain := termsafe.Line(strings.TrimRight(string(b), "\r"))
	if len(b) == 0 || b[0] != '{' {
		return hclog.NoLevel, plain, nil
	}
	var raw map[string]json.RawMessage
	if json.Unmarshal(b, &raw) != nil {
		return hclog.NoLevel, plain, nil
	}
	var msg, lvl string
	if json.Unmarshal(raw["@message"], &msg) != nil || json.Unmarshal(raw["@level"], &lvl) != nil {
		return hclog.NoLevel, plain, nil
	}
	level := hclog.LevelFromString(lvl)
	if level == hclog.NoLevel || level == hclog.Off {
		return hclog.NoLevel, plain, nil
	}
	keys := make([]string, 0, len(raw))
	for k := range raw {
		if !strings.HasPrefix(k, "@") {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	if len(keys) > mostPairs {
		keys = keys[:mostPairs]
	}
	pairs := make([]string, 0, 2*len(keys))
	for _, k := range keys {
		var s string
		if json.Unmarshal(raw[k], &s) != nil {
			s = string(raw[k])
		}
		pairs = append(pairs, termsafe.Line(k), termsafe.String(s))
	}
	return level, termsafe.Line(msg), pairs
}

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
