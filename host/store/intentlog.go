package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Each process has one file of intents, made with its first and removed when the store is closed with none left. A
// line is an intent as it is from then on, or says that it is done. So recording and forgetting a sandbox are appends,
// where a file of its own would have to be made and removed each time, which some file systems take badly.

const intentSuffix = ".jsonl"

// intentDone is the line that ends an intent.
type intentDone struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`
	Done   bool   `json:"done"`
}

// intentLog is this process's file of intents.
type intentLog struct {
	dir string

	mu     sync.Mutex
	path   string // empty until there is one
	placed bool   // its name is on disk
	active map[string]bool
}

// claim takes a place for an intent and returns the file that it goes into.
//
// With persistent, the file's name is on disk too when claim returns. Intents that need not outlive a reboot are spared the
// wait for that.
func (l *intentLog) claim(id string, persistent bool) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active[id] {
		return "", fmt.Errorf("sandbox %s is there already", id)
	}
	if l.path == "" {
		path := filepath.Join(l.dir, ownedName()+intentSuffix)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return "", diskError("write", path, err)
		}
		f.Close()
		l.path, l.placed, l.active = path, false, map[string]bool{}
	}
	if persistent && !l.placed {
		if err := syncDir(l.dir); err != nil {
			return "", err
		}
		l.placed = true
	}
	l.active[id] = true
	return l.path, nil
}

func (l *intentLog) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.active, id)
}

// done ends an intent of this process or of one that is gone. No fsync: an intent that comes back after a power cut
// describes what is gone, and destroying that succeeds.
func (l *intentLog) done(r *IntentRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.file != l.path {
		err := appendIntent(r.file, intentDone{IntentSchema, r.ID, true}, false)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a gc was faster
		}
		return err
	}
	delete(l.active, r.ID)
	if len(l.active) > 0 {
		return appendIntent(r.file, intentDone{IntentSchema, r.ID, true}, false)
	}
	if err := os.Truncate(l.path, 0); err != nil { // nothing is left in it: so it never grows long
		return diskError("write", l.path, err)
	}
	return nil
}

// close removes the file if nothing is left in it.
func (l *intentLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || len(l.active) > 0 {
		return nil
	}
	path := l.path
	l.path = ""
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("remove", path, err)
	}
	return nil
}

// appendIntent appends one line to a file of intents, which must exist. When the disk takes only a part of the line that
// part is taken back.
func appendIntent(path string, v any, sync bool) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return diskError("write", path, err)
	}
	defer f.Close()
	if err := lockFile(f, unix.LOCK_EX); err != nil {
		return diskError("lock", path, err)
	}
	if !sameFile(f, path) {
		return diskError("write", path, fs.ErrNotExist) // a gc took it while we waited
	}
	return appendLine(f, path, v, sync)
}

// appendLine appends v as one line of JSON, after cutting off what a writer that died left of a line.
func appendLine(f *os.File, path string, v any, sync bool) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return appendBytes(f, path, append(line, '\n'), sync)
}

// appendBytes appends a whole line, newline included.
func appendBytes(f *os.File, path string, line []byte, sync bool) error {
	fi, err := f.Stat()
	if err != nil {
		return diskError("write", path, err)
	}
	size := fi.Size()
	if end, err := lastNewline(f, size); err != nil {
		return diskError("read", path, err)
	} else if end+1 < size {
		if err := f.Truncate(end + 1); err != nil {
			return diskError("write", path, err)
		}
		size = end + 1
	}
	if _, err = f.Write(line); err == nil && sync {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(size)
		return diskError("write", path, err)
	}
	return nil
}

// readIntents returns the intents in a file that are not done, as they were last. Half a line at the end belongs to a
// call that never returned, and does not count.
func readIntents(path string) ([]Intent, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, diskError("read", path, err)
	}
	var ids []string
	last := map[string]Intent{}
	var bad error
	for n := 1; ; n++ {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		var line struct {
			Intent
			Done bool `json:"done"`
		}
		err := json.Unmarshal(b[:i], &line)
		b = b[i+1:]
		switch {
		case err == nil && (line.Schema != IntentSchema || !isSandboxID(line.ID)):
			err = fmt.Errorf("schema %.40q, sandbox %.80q", line.Schema, line.ID)
			fallthrough
		case err != nil:
			if bad == nil {
				bad = fmt.Errorf("read %s: line %d is not an intent: %w", path, n, err)
			}
		case line.Done:
			delete(last, line.ID)
		default:
			if _, known := last[line.ID]; !known {
				ids = append(ids, line.ID)
			}
			last[line.ID] = line.Intent
		}
	}
	var list []Intent
	for _, id := range ids {
		if i, ok := last[id]; ok {
			list = append(list, i)
			delete(last, id) // an id that was used again stands in ids twice
		}
	}
	return list, bad
}
