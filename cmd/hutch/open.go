package main

import (
	"context"
	"time"

	"github.com/hutch-run/hutch/host/session"
)

// open opens a session for one command. What it returns besides ends it: backends are asked to stop, and killed when
// they do not.
func open(u *ui) (*session.Session, func(), error) {
	s, err := session.Open(session.Options{Version: version})
	if err != nil {
		return nil, nil, err
	}
	u.onKill(s.Kill)
	return s, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			u.note("%s", err)
		}
	}, nil
}
