package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/session"
)

// ahead is a session that is opened, with its backends on their way up, while the command line is still being read:
// that takes a millisecond, and a backend's start is most of what a run waits for. It rests on a guess. When the guess
// was wrong, because the command line has a mistake, a backend has run for a moment, and nothing else has happened.
type ahead struct {
	done  chan struct{} // closed when the rest is there
	files []string      // run files that the guess found
	s     *session.Session
	err   error
}

// lookAhead guesses which backends a command line will need, nil when it is not one that runs something.
func lookAhead(u *ui, args []string) *ahead {
	name, files := guess(args)
	box := guessSandbox(args)
	if name == "" && len(files) == 0 && box == "" {
		return nil
	}
	a := &ahead{done: make(chan struct{}), files: files}
	go func() {
		defer close(a.done)
		if a.s, a.err = openSession(u); a.err != nil {
			return
		}
		switch {
		case box != "":
			if info, err := a.s.Store().FindSandbox(box); err == nil {
				a.s.StartMaker(info.Backend, info.Binary, info.BinarySHA256)
			}
		case name != "":
			a.s.UseLocks(files...)
			a.s.Start(name)
		default:
			a.s.StartFor(files)
		}
	}()
	return a
}

// guess finds the backend and the run files that a `hutch run` names.
func guess(args []string) (backend string, files []string) {
	if len(args) == 0 || args[0] != "run" || asksForHelp(args) {
		return "", nil
	}
	for i := 1; i < len(args) && args[i] != "--"; i++ {
		if name, is := strings.CutPrefix(args[i], "--backend="); is {
			backend = name
		}
		if args[i] == "--backend" && i+1 < len(args) {
			i++
			backend = args[i]
		}
		if strings.HasSuffix(args[i], ".hcl") || strings.HasSuffix(args[i], ".hcl.json") {
			files = append(files, args[i])
		}
	}
	return backend, files
}

// guessSandbox finds the sandbox that a `hutch exec` names: what stands before the command, where people write it.
func guessSandbox(args []string) string {
	if len(args) == 0 || args[0] != "exec" {
		return ""
	}
	end := slices.Index(args, "--")
	if end < 2 || asksForHelp(args[:end]) || strings.HasPrefix(args[end-1], "-") {
		return ""
	}
	return args[end-1]
}

// fits reports whether the guess looked into the right lock files: those beside the run files.
func (a *ahead) fits(files []string) bool {
	dirs := func(files []string) []string {
		var all []string
		for _, f := range files {
			all = append(all, filepath.Dir(f))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(dirs(a.files), dirs(files))
}

// take gives the session away, and the receiver closes it.
func (a *ahead) take() (*session.Session, error) {
	<-a.done
	s, err := a.s, a.err
	a.s = nil
	return s, err
}

// drop ends a session that nobody took.
func (a *ahead) drop() {
	if a == nil {
		return
	}
	if s, err := a.take(); err == nil && s != nil {
		_ = s.Close(context.Background())
	}
}
