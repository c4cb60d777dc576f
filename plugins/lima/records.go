package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/atomicfile"
	"github.com/hutch-run/hutch/sdk/limits"
)

// What hutch knows of a VM lies beside it, below LIMA_HOME/_hutch/NAME: Lima takes no name that begins with an
// underscore.
//
//	lock            held alone while the VM, or what lies here, is changed; its content is what is being done
//	vm.json         what hutch made the VM from; missing for one that somebody else made
//	guest.json      what the guest said of itself last
//	sandboxes/ID    the sandboxes that are in the VM, so that they are known while it is stopped
//	gone/ID         those that were removed while it was, and are still on its disk
type records struct{ dir string }

func (l *limactl) records(name string) records { return records{filepath.Join(l.home, "_hutch", name)} }

// vmRecord is vm.json.
type vmRecord struct {
	Fingerprint string `json:"fingerprint"` // of the instance file
	Exchange    string `json:"exchange"`    // the host directory that the VM sees
}

// boxRecord is what a fresh process needs to know of a sandbox.
type boxRecord struct {
	ID        string
	Owner     string
	StateDir  string
	Dedicated bool // the VM is the sandbox's own
	Stop      bool // the VM is stopped with its last sandbox
	Spec      sdk.Spec
	Ready     *sdk.Ready // once it is made
	Stopped   bool       // until something is wanted of it
}

// guestFacts is guest.json.
type guestFacts struct {
	Limits map[limits.Limit]limits.How `json:"limits"`
	User   string                      `json:"user"`
	Kernel string                      `json:"kernel"`
	Arch   string                      `json:"arch"`
	Size   wire.Machine                `json:"size"`
}

func factsOf(h *wire.Hello) guestFacts {
	return guestFacts{Limits: h.Limits, User: h.User, Kernel: h.Kernel, Arch: h.Arch, Size: h.Size}
}

// lockStep is the time between two looks at a lock that somebody has.
const lockStep = 50 * time.Millisecond

// does notes in the lock, which this process holds, what it does there.
func (r records) does(what string) {
	_ = os.WriteFile(filepath.Join(r.dir, "lock"), []byte(what), 0o600) // only a help for those who wait
}

// lock takes the VM for the caller alone, and waits for other processes, and other calls of this one, until ctx ends;
// say hears what they do meanwhile.
func (r records) lock(ctx context.Context, say progress) (unlock func(), err error) {
	for _, dir := range []string{r.dir, filepath.Join(r.dir, "sandboxes"), filepath.Join(r.dir, "gone")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make hutch's records beside Lima's: %w", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(r.dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	say, over := say.steady()
	defer over()
	tick := time.NewTicker(lockStep)
	defer tick.Stop()
	for last := ""; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			r.does("")
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		doing, _ := os.ReadFile(f.Name())
		text := "waiting for another run that works on the VM " + filepath.Base(r.dir)
		if len(doing) > 0 {
			text += ": " + strings.ToValidUTF8(string(doing), "?")
		}
		if text != last {
			last = text
			say.say("%s", text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		}
	}
}

func (r records) box(id string) string  { return filepath.Join(r.dir, "sandboxes", id) }
func (r records) gone(id string) string { return filepath.Join(r.dir, "gone", id) }

// write replaces a record in one step.
func (r records) write(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(name, append(b, '\n'), 0o600, false)
}

func (r records) read(name string, v any) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// vm reads vm.json; nil for a VM that somebody else made.
func (r records) vm() (*vmRecord, error) {
	v := &vmRecord{}
	err := r.read(filepath.Join(r.dir, "vm.json"), v)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return v, err
}

// ids lists the files of a directory of records.
func (r records) ids(of string) (ids []string, err error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, of))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".new") {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// forget removes all records of a VM that does not exist any more, but the lock.
func (r records) forget() error {
	var errs []error
	for _, name := range []string{"vm.json", "guest.json", "sandboxes", "gone"} {
		errs = append(errs, os.RemoveAll(filepath.Join(r.dir, name)))
	}
	return errors.Join(errs...)
}
