package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
)

// open opens a session for one command. What it returns besides ends it: backends are asked to stop, and killed when
// they do not.
func open(u *ui) (*session.Session, func(), error) {
	open := func() (*session.Session, error) { return openSession(u) }
	if u.ahead != nil {
		open, u.ahead = u.ahead.take, nil
	}
	s, err := open()
	if err != nil {
		return nil, nil, whereElse(err)
	}
	u.onKill(s.Leave)
	return s, func() {
		patience := time.Minute
		if u.interrupted.Load() != 0 {
			patience = 5 * time.Second // what could be cleaned up has been
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), patience,
			fmt.Errorf("it was not done within %s, and was killed", patience))
		defer cancel()
		if err := s.Close(ctx); err != nil {
			u.note("%s", err)
		}
	}, nil
}

// retire returns a function that begins to stop the backends of s, while records are completed.
func retire(u *ui, s *session.Session) func() {
	return func() {
		if u.interrupted.Load() == 0 { // else they are stopped in a hurry
			s.Retire()
		}
	}
}

// openFor opens a session for run files, whose lock files say which backends are used.
func openFor(u *ui, files []string) (*session.Session, func(), error) {
	if u.ahead != nil && !u.ahead.fits(files) {
		u.ahead.drop() // it may have started a backend that is not the one that is locked
		u.ahead = nil
	}
	s, done, err := open(u)
	if err == nil {
		s.UseLocks(files...)
	}
	return s, done, err
}

func openSession(u *ui) (*session.Session, error) {
	return session.Open(session.Options{Version: version, Keeper: u.host.keeper,
		Warn: func(line string) { u.note("%s", line) }})
}

// openStore opens the store alone, for commands that only look at what is recorded.
func openStore() (*store.Store, func(), error) {
	s, err := store.Open(store.Options{})
	if err != nil {
		return nil, nil, whereElse(err)
	}
	return s, func() { _ = s.Close() }, nil
}

// whereElse adds to an error about permissions that there is a choice.
func whereElse(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return hint(err, "HUTCH_HOME names another directory for all that hutch keeps")
	}
	return err
}
