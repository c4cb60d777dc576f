package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// Init is the init container: with --copy it puts this program where the sandbox's container sees it, and with --wait
// it stays until the backend has brought the input and made the file [wire.Ready].
func Init(args []string) error {
	flags := flag.NewFlagSet("init", flag.ContinueOnError)
	install := flags.Bool("copy", false, "put this program into the pod")
	wait := flags.Bool("wait", false, "wait for the input")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *install {
		if err := copyProgram(); err != nil {
			return fmt.Errorf("put the agent into the pod: %w", err)
		}
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for *wait {
		if _, err := os.Stat(wire.Ready); err == nil {
			break
		}
		select {
		case <-end:
			os.Exit(128 + int(unix.SIGTERM))
		case <-tick.C:
		}
	}
	return nil
}

func copyProgram() error {
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(wire.Agent+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o755), out.Close(), os.Rename(wire.Agent+".new", wire.Agent))
}

// sweepTime is the time between two looks at what is left, and at whether a client is there.
const sweepTime = time.Second

// Serve is process 1 of the sandbox's container. It never ends well: by SIGTERM, or, with --lease, when no client was
// there for so long.
func Serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	lease := flags.Duration("lease", 0, "end when no client was there for so long; 0 for never")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return errors.New("this program is the first process of a container, and nothing else")
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become unreadable: %w", err)
	}
	if err := descendants.Supported(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals) // those of commands have no effect, but for SIGTERM, which the kubelet sends
	tick := time.NewTicker(sweepTime)
	defer tick.Stop()
	seen := time.Now()
	for {
		select {
		case sig := <-signals:
			if sig == unix.SIGTERM {
				os.Exit(128 + int(unix.SIGTERM))
			}
			if sig != unix.SIGCHLD {
				continue
			}
		case <-tick.C:
			if len(clients()) > 0 {
				seen = time.Now()
			}
			if *lease > 0 && time.Since(seen) > *lease {
				fmt.Fprintf(os.Stderr, "hutch-kubernetes-agent: no client came within %s\n", *lease)
				os.Exit(wire.Lost)
			}
			sweep()
		}
		reap()
	}
}

// reap reaps what has ended.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && err != unix.EINTR {
			return
		}
	}
}

// sweep kills what became process 1's because what stood above a command was killed.
func sweep() {
	if len(orphans()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	_, _ = descendants.Kill(ctx, orphans) // what does not end is met again
}

// orphans are the processes that have lost what stood above them. Commands that run have an init of their own.
func orphans() []int { return descendants.Of(1) }

// clients are the processes that were started from outside: the execs of backends.
func clients() []int {
	return processes(func(pid int, s procstat.Stat) bool { return s.Parent == 0 && pid != 1 })
}

// commands are all processes but process 1 and the clients.
func commands() []int {
	return processes(func(pid int, s procstat.Stat) bool { return s.Parent != 0 && !s.Dead() })
}

// processes lists those of the pod that take is true of.
func processes(take func(pid int, s procstat.Stat) bool) (out []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := procstat.Of(pid); err == nil && take(pid, s) {
			out = append(out, pid)
		}
	}
	return out
}
