// Package supervise runs commands and makes sure that nothing of them is left when they are over: not the children, not
// those that forked twice, not those that made a session of their own.
//
// Above every command there is a program of 3 KiB (package microinit), the first process of the command's namespace or
// the reaper of its orphans. It starts the command, reports how it ended, and kills what it left behind, also when the
// other end of its socket ends. A [Child] is that other end. [Start] does all of it for a process of this machine:
//
//	p, err := supervise.Start(cmd, supervise.Options{Grace: 2 * time.Second})
//	res := p.Wait(ctx) // when ctx ends: TERM, grace, KILL, and only then back
//
// A backend whose commands are started by another program of its own, in a container or in a virtual machine, uses
// [Prepare] and has that program start the init.
//
// The package also carries descriptors over a [Socket], opens the FIFOs by which a host hands over standard streams,
// makes terminals, and lets a process know that its host has died ([Lifeline]). It imports the standard library and
// little else, because programs that have to start quickly import it.
package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// DefaultGrace is the time between SIGTERM and SIGKILL when Options holds none.
const DefaultGrace = 2 * time.Second

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
