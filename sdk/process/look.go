package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// NotRunnable says why a program cannot be run, with the code that shells give.
type NotRunnable struct {
	Code int    // 126: it is there and cannot be executed; 127: it is not there
	Why  string // for a person
}

func (e *NotRunnable) Error() string { return e.Why }

// DefaultPath is where programs are looked up when a command was given no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Look finds the program of a command that sees the same files as this process: by
// the command's own PATH unless the name holds a slash, with relative names taken
// from dir. The error is a *NotRunnable.
func Look(name, path, dir string) (string, error) {
	if path == "" {
		path = DefaultPath
	}
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = candidates[:0]
		for d := range strings.SplitSeq(path, ":") {
			candidates = append(candidates, filepath.Join(d, name))
		}
	}
	not := &NotRunnable{127, fmt.Sprintf("%q is in none of the directories of %s", name, path)}
	for _, p := range candidates {
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		fi, err := os.Stat(p)
		switch {
		case err != nil:
			if len(candidates) == 1 {
				not.Why = err.Error()
			}
		case fi.IsDir() || fi.Mode()&0o111 == 0:
			not = &NotRunnable{126, p + ": " + syscall.EACCES.Error()}
		default:
			return p, nil
		}
	}
	return "", not
}
