package server

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// listenFD is the listening socket that the agent is started with.
const listenFD = 3

// Main is the agent. It is started as pid 1 of a container, with a listening socket
// as descriptor 3, and returns only what went wrong.
//
// Nothing else runs in the container before it is done with protecting itself.
func Main(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return errors.New("this program is the first process of a container, and nothing else")
	}
	if err := deafen(); err != nil {
		return fmt.Errorf("set signals aside: %w", err)
	}
	// What the container's runtime has left open is nobody's business.
	if err := unix.CloseRange(listenFD+1, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close descriptors: %w", err)
	}
	unix.CloseOnExec(listenFD)
	if err := unix.Listen(listenFD, 128); err != nil { // and so be who listens, in the eyes of its peers
		return fmt.Errorf("listen on descriptor %d: %w", listenFD, err)
	}
	s := &server{
		oom: openScore(), watched: map[int]child{}, conns: make(slots, maxConns), commands: make(slots, maxCommands),
	}
	// From here on nobody in the container may trace this process or open what is its
	// own below /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become unreadable: %w", err)
	}
	if err := descendants.Supported(); err != nil {
		return err
	}
	if s.image, err = supervise.Image(o.limits, false); err != nil {
		return err
	}
	unix.Umask(0o022)
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 2))
	warm()
	go s.reap()
	if o.lifeline > 0 {
		time.AfterFunc(o.lifeline, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.tied {
				complain("no host came within %s", o.lifeline)
				os.Exit(0)
			}
		})
	}
	return s.listen(listenFD)
}

// options are what the agent gets at its start.
type options struct {
	lifeline time.Duration
	limits   []microinit.Rlimit
}

// resources are the names of the resource limits that can be set.
var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA,
	"fsize":   unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK, "nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "stack": unix.RLIMIT_STACK,
}

func parse(args []string) (o options, err error) {
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	set.DurationVar(&o.lifeline, "lifeline", 0,
		"exit when no connection has become the lifeline by then; 0 waits for ever")
	set.Func("rlimit", "NAME=VALUE: a resource limit of every command", func(s string) error {
		name, value, _ := strings.Cut(s, "=")
		resource, ok := resources[name]
		n, err := strconv.ParseUint(value, 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("%q is no resource limit", s)
		}
		o.limits = append(o.limits, microinit.Rlimit{Resource: resource, Value: n})
		return nil
	})
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return o, nil
}

// warm has the runtime make the threads it may need, which with those that it has are as many as OwnPIDs leaves
// room for. Later, when the container has used up its processes, there may be none to be had, and Go dies of that; and
// room that we leave is room that commands take: they would have more processes than their limit says.
func warm() {
	const threads = 6
	var all, done sync.WaitGroup
	all.Add(threads)
	for range threads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	done.Wait()
}
