package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/termsafe"
)

// watchFlag is --watch of commands that list.
type watchFlag struct {
	Watch bool `help:"Show the list again as it changes, until ^C."`
}

// watchEvery is the time between two looks.
const watchEvery = 2 * time.Second

// watch calls list, with --watch again and again until ctx ends: on a terminal the screen shows the latest list,
// otherwise a list that differs from the one before is printed, with times in place of ages.
func (w watchFlag) watch(ctx context.Context, u *ui, list func() error) error {
	if !w.Watch {
		return list()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	out, err := u.out, u.err
	u.absolute = !u.outTTY
	var last string
	for {
		var text, notes bytes.Buffer
		u.write(&text, &notes)
		failed := list()
		u.write(out, err)
		text.Write(notes.Bytes())
		switch {
		case ctx.Err() != nil:
			return nil
		case failed != nil:
			return failed
		case text.String() != last:
			last = text.String()
			shown := last
			if u.outTTY {
				shown = u.screen(last)
			}
			if _, err := io.WriteString(out, shown); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// began is when something began, for a list: how long ago, or the time where a list is printed again when it changes.
func (u *ui) began(t time.Time) string {
	if u.absolute {
		return t.Local().Format(time.DateTime)
	}
	return humanize.Time(t)
}

// write sets where output and notes go from now on.
func (u *ui) write(out, err io.Writer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.out, u.err = out, err
}

// screen puts text on the whole screen, cut to its size.
func (u *ui) screen(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if wide, high, err := term.GetSize(int(u.stdout.Fd())); err == nil && wide > 0 && high > 0 {
		lines = lines[:min(len(lines), max(high-1, 1))]
		for i, line := range lines {
			lines[i] = termsafe.Cut(line, wide)
		}
	}
	return "\x1b[H\x1b[2J" + strings.Join(lines, "\r\n") + "\r\n"
}
