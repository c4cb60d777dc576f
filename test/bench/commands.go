package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

var measurements = []measurement{
	{"version", "<= 1.2x", atMost(1.2), version},
	{"one run", "<= 4x, adds <= 15 ms", func(h, b sample) bool {
		return h.ratio(b) <= 4 &&
			h.adds(b, 0.5) <= 15*time.Millisecond
	}, oneRun},
	{"one run, served", "<= 1x", atMost(1), servedRun},
	{"hutch exec, served", "<= 1x", atMost(1), servedExec},
	{"one run, beside podman run", "<= 1x", atMost(1), peer(podmanRun)},
	{"one run, beside firejail", "<= 1x", atMost(1), peer(firejail)},
	{"one run, beside srt", "<= 1x", atMost(1), peer(srt)},
	{"1,000 runs in one call", "<= 1.15x", atMost(1.15), manyRuns},
	{"exec in a sandbox", "adds p50 <= 0.7 ms, p99 <= 1.5 ms", func(h, b sample) bool {
		return h.adds(b, 0.5) <= 700*time.Microsecond && h.adds(b, 0.99) <= 1500*time.Microsecond
	}, warmExec},
	{"exec in a Podman sandbox", ">= 10x faster", atMost(1.0 / 10), podmanHutchExec},
	{"exec in a Podman sandbox, open connection", ">= 100x faster", atMost(1.0 / 100), podmanExec},
	{"1 GB of output", "<= 1.05x, host < 64 MiB", func(h, b sample) bool {
		return h.ratio(b) <= 1/0.95 &&
			h.memory < 64<<20
	}, output},
	{"search 10,000 files of a sandbox", "<= 1x", atMost(1), search},
	{"list 10,000 files of a sandbox", "<= 1.5x", atMost(1.5), list},
	{"project of 50,000 files", "0.9x to 1.1x", func(h, b sample) bool { return h.ratio(b) >= 0.9 && h.ratio(b) <= 1.1 },
		bigProject},
	{"diff of 10,000 changes, diff -rq", "<= 0.2x", atMost(0.2), diffRq},
	{"diff of 10,000 changes, git status", "<= 0.2x", atMost(0.2), gitStatus},
	{"push of 5,000 files", "<= 1.2x", atMost(1.2), pushBranch},
	{"push of 5,000 files, by hand", "<= 1.2x", atMost(1.2), pushByHand},
	{"E2B push of 2,000 files", "<= 1.2x", atMost(1.2), pushE2B},
	{"one run with a rule of network", "adds <= 3 ms", func(h,
		b sample) bool {
		return h.adds(b, 0.5) <= 3*time.Millisecond
	}, withRule},
	{"1 GB by a rule", "<= 1.33x", atMost(1 / 0.75), download},
	{"10,000 connections by a rule", "all, <= 2x", atMost(2), connections},
}

func atMost(x float64) func(h, base sample) bool {
	return func(h, base sample) bool { return h.ratio(base) <= x }
}

// version compares start-up with a program that links the same packages and does nothing.
func version(b *bench) (h, base sample, err error) {
	linked, empty := filepath.Join(b.tmp, "linked"), filepath.Join(b.tmp, "bin", "linked")
	if _, err := b.command("go", "build", "-o", linked, "./test/bench/linked")(); err != nil {
		return h, base, err
	}
	if err := install(linked, empty); err != nil {
		return h, base, err
	}
	h, base, err = interleave(b.rounds(60), b.command(b.hutch(), "--version"), b.command(empty))
	base.what = "a Go program with the same packages"
	return h, base, err
}

func oneRun(b *bench) (h, base sample, err error) {
	ws, err := b.project("small", 5)
	if err != nil {
		return h, base, err
	}
	h, base, err = interleave(b.rounds(100),
		b.command(b.hutch(), "run", "-q", "--backend", "bwrap", "--workspace", ws, "--", "true"),
		b.command(bwrap(ws, "true")...))
	base.what = "bare bwrap"
	return h, base, err
}

// serve starts a resident; what served returns hands over to it.
func (b *bench) serve() (served func(args ...string) func() (cost, error), stop func() error, err error) {
	dir := filepath.Join(b.tmp, "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	hutch := func(args ...string) error {
		cmd := exec.Command(b.hutch(), args...)
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+b.home, "XDG_RUNTIME_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		return nil
	}
	return func(args ...string) func() (cost, error) { return timed(func() error { return hutch(args...) }) },
		func() error { return hutch("serve", "--stop") }, hutch("serve", "--detach")
}

// servedRun measures no processor time: that of the resident is not that of a child.
func servedRun(b *bench) (h, base sample, err error) {
	ws, err := b.project("small", 5)
	if err != nil {
		return h, base, err
	}
	served, stop, err := b.serve()
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	h, base, err = interleave(b.rounds(100), served("run", "-q", "--backend", "bwrap", "--workspace", ws, "--", "true"),
		b.command(bwrap(ws, "true")...))
	base.what = "bare bwrap"
	return h, base, err
}

func servedExec(b *bench) (h, base sample, err error) {
	ws, err := b.project("small", 5)
	if err != nil {
		return h, base, err
	}
	served, stop, err := b.serve()
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	file := filepath.Join(b.tmp, "served.hcl")
	if err := os.WriteFile(file,
		fmt.Appendf(nil,
			"run \"served\" {\n  backend \"bwrap\" {}\n  command = [\"true\"]\n  workspace { source = %q }\n}\n", ws),
		0o600); err != nil {
		return h, base, err
	}
	if _, err := b.command(b.hutch(), "create", "--name", "served", file)(); err != nil {
		return h, base, err
	}
	defer func() {
		_, rmErr := b.command(b.hutch(), "rm", "-f", "served")()
		err = errors.Join(err, rmErr)
	}()
	h, base, err = interleave(b.rounds(100), served("exec", "served", "--", "true"), b.command(bwrap(ws, "true")...))
	base.what = "bare bwrap"
	return h, base, err
}

func manyRuns(b *bench) (h, base sample, err error) {
	n := 1000
	if b.quick {
		n = 50
	}
	file := filepath.Join(b.tmp, "many.hcl")
	err = os.WriteFile(file, fmt.Appendf(nil, `run "true" {
  for_each = toset([for n in range(%d) : tostring(n)])
  backend "bwrap" {}
  command = ["true"]
}
`, n), 0o600)
	if err != nil {
		return h, base, err
	}
	cores := fmt.Sprint(runtime.NumCPU())
	h, base, err = interleave(b.rounds(3),
		b.command(b.hutch(), "run", "-q", "-j", cores, file),
		b.command("sh", "-c", fmt.Sprintf("seq %d | xargs -P %s -I{} %s", n, cores, strings.Join(bwrap("", "true"), " "))))
	base.what = "xargs -P bare bwrap"
	return h, base, err
}

// output pins both sides to one CPU: a pipe between two is another, bimodal thing.
func output(b *bench) (h, base sample, err error) {
	size := "1000000000"
	if b.quick {
		size = "100000000"
	}
	peak := int64(0)
	hutch := func() (cost, error) {
		cmd := exec.Command("taskset", "-c", "0", b.hutch(), "run", "-q", "--backend", "bwrap", "--", "head", "-c", size,
			"/dev/zero")
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+b.home)
		c, err := b.spend(cmd)
		if err == nil {
			peak = max(peak, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
		}
		return c, err
	}
	h, base, err = interleave(b.rounds(10), hutch,
		b.command("taskset", "-c", "0", "sh", "-c", strings.Join(bwrap("", "head", "-c", size, "/dev/zero"),
			" ")+" | cat >/dev/null"))
	base.what = "bare bwrap | cat, all pinned to one CPU"
	h.memory = peak << 10
	h.note = fmt.Sprintf(", largest process of hutch %d MiB", h.memory>>20)
	return h, base, err
}

// bigProject compares hutch with itself.
func bigProject(b *bench) (h, base sample, err error) {
	n := 50_000
	if b.quick {
		n = 1000
	}
	big, err := b.project("big", n)
	if err != nil {
		return h, base, err
	}
	small, err := b.project("small", 5)
	if err != nil {
		return h, base, err
	}
	run := func(ws string) func() (cost, error) {
		return b.command(b.hutch(), "run", "-q", "--backend", "bwrap", "--workspace", ws, "--", "true")
	}
	h, base, err = interleave(b.rounds(60), run(big), run(small))
	base.what = "hutch on a project of 5 files"
	return h, base, err
}

// project makes a directory of n small files, once.
func (b *bench) project(name string, n int) (string, error) {
	dir := filepath.Join(b.tmp, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return "", err
			}
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%02d", i%100)), []byte("x\n"), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}
