// Package command drives a command that a backend started somewhere: its signals, its window, its end, its terminal.
// Backends that start their own process have it easier with package process.
package command

import (
	"context"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// Running is a command that was started, or is about to be. Its methods are called concurrently.
type Running interface {
	// Started is closed when the command was executed, or when it is clear that it never will be.
	Started() <-chan struct{}
	// Executed says, once Started is closed, whether the command ever ran.
	Executed() bool
	// Signal sends a signal to the command itself; one that is gone gets none.
	Signal(s syscall.Signal) error
	// SignalGroup sends a signal to the command's process group.
	SignalGroup(s syscall.Signal) error
	// Kill kills all that the command started, at once. It does not wait.
	Kill() error
}

// Watch calls c.Started when the command runs, and delivers c.Signals and c.Resizes to it until stop is called, which
// the caller does when the command and all its processes are gone. When ctx ends before that, the command's group gets
// SIGTERM, and after c.Grace everything is killed. resize may be nil; window sizes are then left alone.
func Watch(ctx context.Context, p Running, c *sdk.Command, resize func(sdk.WindowSize)) (stop func()) {
	done, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		watch(ctx, p, c, resize, done)
	}()
	return func() {
		close(done)
		<-finished
	}
}

func watch(ctx context.Context, p Running, c *sdk.Command, resize func(sdk.WindowSize), done <-chan struct{}) {
	started := p.Started()
	tell := func() {
		started = nil
		if c.Started != nil && p.Executed() {
			c.Started()
		}
	}
	signals, resizes := c.Signals, c.Resizes
	if resize == nil {
		resizes = nil
	}
	for {
		select {
		case <-started:
			tell()
		case n, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			select { // it may run already without our having heard of it
			case <-p.Started():
			case <-done:
			case <-ctx.Done():
			}
			_ = p.Signal(syscall.Signal(n)) // a command that is gone needs none
		case size, ok := <-resizes:
			if !ok {
				resizes = nil
				continue
			}
			resize(size)
		case <-ctx.Done():
			end(p, c.Grace, done)
			return
		case <-done:
			if started != nil { // both came at once
				select {
				case <-started:
					tell()
				default:
				}
			}
			return
		}
	}
}

// end asks the command to end, and kills all that it started when it has not done so within grace.
func end(p Running, grace time.Duration, done <-chan struct{}) {
	if grace <= 0 {
		grace = supervise.DefaultGrace
	}
	select {
	case <-p.Started():
		_ = p.SignalGroup(syscall.SIGTERM)
	default: // there is nobody yet who could end in order
		_ = p.Kill()
		return
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		_ = p.Kill()
	}
}
