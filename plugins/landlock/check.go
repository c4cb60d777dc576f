package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/confined"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// Check implements [sdk.Backend]: what the kernel offers, and a command that tries what it must not do.
func (*backend) Check(ctx context.Context) ([]sdk.Finding, error) {
	kernel := sdk.Finding{Name: "landlock", Status: sdk.SeverityOK,
		Detail: fmt.Sprintf("version %d of its interface", confined.Landlock())}
	if err := supported(); err != nil {
		return []sdk.Finding{sdk.Failed(kernel.Name, err)}, nil
	}
	out := []sdk.Finding{kernel, trial(ctx)}
	if out[1].Status == sdk.SeverityError {
		return out, nil
	}
	out = append(out, sdk.Finding{Name: "strength", Status: sdk.SeverityWarning,
		Fix: "use bwrap or podman where they work: hutch doctor says what they lack",
		Detail: "weaker than namespaces: commands share this machine's process ids and network, can learn whether a path " +
			"exists and how large it is, and a fork bomb can outlive a plugin that is killed"})
	for _, l := range []struct{ name, by string }{{"memory", limits.Sampled}, {"pids", countedTasks},
		{"cpus", "sched_setaffinity, whole numbers only"}} {
		out = append(out, sdk.Finding{Name: "limit " + l.name, Status: sdk.SeverityOK, Detail: l.by})
	}
	for _, i := range []struct{ program, pkg string }{{"python3", "python3"}, {"node", "nodejs"}} {
		f := sdk.Finding{Name: "interpreter " + i.program, Status: sdk.SeverityOK}
		var err error
		if f.Detail, err = supervise.Look(i.program, "", "/"); err != nil {
			f.Status, f.Detail, f.Fix = sdk.SeverityWarning, "not below /usr",
				"apt-get install "+i.pkg+", or name the directory it is in with ro_paths"
		}
		out = append(out, f)
	}
	return out, nil
}

// escape succeeds where the sandbox does not hold. $1 is a file outside of it, $2 a process.
const escape = `cat "$1" && exit 11
echo x > "$1" && exit 12
chmod 777 "$1" && exit 13
kill -0 "$2" && exit 14
chmod 700 . && echo x > file || exit 15
exit 0`

var escapes = map[int]string{11: "read a file outside of the sandbox", 12: "write one", 13: "change its mode",
	14: "signal hutch", 15: "not write to its own workspace"}

// trial makes a sandbox and runs a command in it.
func trial(ctx context.Context) sdk.Finding {
	f := sdk.Finding{Name: "sandbox", Status: sdk.SeverityOK,
		Detail: "a command runs, and reaches no file and no process outside"}
	if err := try(ctx); err != nil {
		return sdk.Failed(f.Name, err)
	}
	return f
}

func try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	dir, err := sdk.MkdirTemp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	outside, state := filepath.Join(dir, "outside"), filepath.Join(dir, "state")
	if err := errors.Join(os.WriteFile(outside, []byte("outside\n"), 0o600), os.Mkdir(state, 0o700)); err != nil {
		return err
	}
	b := &backend{}
	sb, err := b.Create(ctx, &sdk.CreateRequest{ID: "check", StateDir: state,
		Allocated: func(sdk.Handle) error { return nil }})
	if err != nil {
		return err
	}
	defer func() { _ = b.Destroy(ctx, sdk.Handle{ID: "check", StateDir: state}) }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	exit, err := sb.Exec(ctx, &sdk.Command{Argv: []string{"/bin/sh", "-c", escape, "sh", outside,
		fmt.Sprint(os.Getpid())}, Stdin: null, Stdout: null, Stderr: null, Started: func() {}})
	switch {
	case err != nil:
		return err
	case escapes[exit.Code] != "":
		return sdk.Errorf(sdk.ReasonMissing, "a command in the sandbox could %s",
			escapes[exit.Code]).WithFix("this kernel lacks what the sandbox rests on; use another machine or backend")
	case exit.Code != 0:
		return sdk.Errorf(sdk.ReasonInternal, "a command in the sandbox ended with %d: %s", exit.Code, exit.Evidence)
	}
	return nil
}
