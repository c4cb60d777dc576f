package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// change is what the sandbox does to a project of directories with a hundred files each: of every directory it changes
// fifteen files, removes three and adds two, so a fifth of all.
const change = `for d in d*; do
	for f in $d/f0? $d/f1[0-4]; do echo changed >> $f; done
	rm $d/f2[0-2]
	echo new > $d/new1; echo new > $d/new2
done
echo x > tool; chmod 755 tool`

// diffRq compares the list of 10,000 changes with what diff(1) makes of two trees.
func diffRq(b *bench) (h, base sample, err error) {
	return b.diff("diff -rq of the project and the same tree changed", func(project, merged string) func() (cost, error) {
		return b.differ("diff", "-rq", project, merged)
	})
}

// gitStatus compares it with git in the changed tree.
func gitStatus(b *bench) (h, base sample, err error) {
	return b.diff("git status in the same tree changed", func(_, merged string) func() (cost, error) {
		return b.command("git", "-C", merged, "status", "--porcelain")
	})
}

func (b *bench) diff(what string, other func(project, merged string) func() (cost, error)) (h, base sample, err error) {
	project, merged, n, err := b.changed()
	if err != nil {
		return h, base, err
	}
	h, base, err = interleave(b.rounds(30), b.command(b.hutch(), "diff", "--name-only", "sh"), other(project, merged))
	base.what = fmt.Sprintf("%s, %d files", what, n)
	return h, base, err
}

// changed makes a project, a sandbox named sh that changed a fifth of it, and the same tree with the same changes. Both
// are git repositories, in which everything was committed before the change.
func (b *bench) changed() (project, merged string, n int, err error) {
	n = 50_000
	if b.quick {
		n = 1000
	}
	merged = filepath.Join(b.tmp, "merged")
	if project, err = b.project("project", n); err != nil {
		return "", "", 0, err
	}
	if _, err := os.Stat(merged); err == nil {
		return project, merged, n, nil
	}
	git := func(dir string, args ...string) func() (cost, error) {
		return b.command(append([]string{"git", "-C", dir, "-c", "user.name=bench", "-c", "user.email=bench@example.org",
			"-c", "gc.auto=0"}, args...)...)
	}
	sh := exec.Command("sh", "-c", change)
	sh.Dir = merged
	for _, step := range []func() (cost, error){
		git(project, "init", "-q"), git(project, "add", "-A"), git(project, "commit", "-qm", "before"),
		b.command("cp", "-a", project, merged), func() (cost, error) { return cost{}, sh.Run() },
		// The new program is refused, so all of it stays in the sandbox.
		b.differ(b.hutch(), "run", "-q", "--backend", "bwrap", "--workspace", project, "--timeout", "10m",
			"--apply=on-success", "--", "sh", "-c", change),
	} {
		if _, err := step(); err != nil {
			return "", "", 0, err
		}
	}
	return project, merged, n, nil
}

// differ is command for one that ends with 1 when it finds a difference.
func (b *bench) differ(argv ...string) func() (cost, error) {
	run := b.command(argv...)
	return func() (cost, error) {
		c, err := run()
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && exit.ExitCode() == 1:
			return c, nil
		case err == nil:
			return c, fmt.Errorf("%q ended with 0, so there was no difference", argv)
		}
		return c, err
	}
}
