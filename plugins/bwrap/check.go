package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/confined"
	"github.com/hutch-run/hutch/sdk/hostids"
	"github.com/hutch-run/hutch/sdk/limits"
)

// Check implements [sdk.Backend]. Every finding but the cgroup's comes from doing
// the thing itself, in the order in which a sandbox needs them; what cannot work
// because of an earlier finding is not tried.
func (b *backend) Check(ctx context.Context) ([]sdk.Finding, error) {
	var out []sdk.Finding
	add := func(f sdk.Finding) bool {
		out = append(out, f)
		return f.Status != sdk.SeverityError
	}
	ok := add(checkBwrap())
	ok = add(checkUserNamespaces()) && ok
	out = append(out, b.checkCgroups(ctx)...)
	if !ok {
		return out, nil
	}
	dir, err := sdk.MkdirTemp()
	if err != nil {
		return out, fmt.Errorf("make a directory to try things in: %w", err)
	}
	defer os.RemoveAll(dir)
	plain, f := b.trySandbox(ctx, dir, sdk.Spec{}, "sandbox",
		"a sandbox can be made: mounts, devices and terminals of its own")
	if !add(f) {
		return out, nil
	}
	defer plain.close()
	private := sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}}
	overlay, f := b.trySandbox(ctx, dir, private, "overlay",
		"a private workspace needs no copy: overlay in a user namespace"+ifRoot(" on an id-mapped mount"))
	if f.Status == sdk.SeverityError {
		f.Status = sdk.SeverityWarning // all else works
		if fsName(dir) == "overlayfs" {
			f.Detail, f.Fix = "a private workspace cannot lie on the container's own file system: "+f.Detail, confined.StateFix()
		}
	} else {
		defer overlay.close()
	}
	out = append(out, f)
	networked, f := b.trySandbox(ctx, dir, sdk.Spec{Network: sdk.NetworkFiltered}, "network", "none, filtered and full")
	if f.Status == sdk.SeverityError {
		f.Status = sdk.SeverityWarning // none works
	} else {
		defer networked.close()
	}
	out = append(out, f)
	out = append(out, checkInside(ctx, plain)...)
	return out, nil
}

func ifRoot(text string) string {
	if hostids.Root() {
		return text
	}
	return ""
}

func checkBwrap() sdk.Finding {
	f := sdk.Finding{Name: "bubblewrap", Status: sdk.SeverityOK}
	path, err := findBwrap()
	if err != nil {
		return failed(f, err)
	}
	text, major, minor, err := bwrapVersion(path)
	if err != nil {
		return failed(f, err)
	}
	f.Detail = text + " at " + path
	if major == 0 && minor < 8 {
		f.Status, f.Detail = sdk.SeverityError, f.Detail+" is too old: --disable-userns came with 0.8.0"
		f.Fix = "install bubblewrap 0.8.0 or newer"
	}
	return f
}

func checkUserNamespaces() sdk.Finding {
	f := sdk.Finding{Name: "user namespaces", Status: sdk.SeverityOK, Detail: "this user can make them"}
	if hostids.Root() {
		f.Detail = "root can make them; sandboxes run as host ids from " + fmt.Sprint(hostids.Base(0)) + " up"
	}
	id := newIdentity(0, 0)
	defer id.Close()
	h, err := holder.Start(id.Identity)
	if err != nil {
		return failed(f, userNamespaceError(err))
	}
	h.Close()
	if restricted("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
		f.Detail += "; AppArmor restricts them (apparmor_restrict_unprivileged_userns=1), and lets this program through"
	}
	return f
}

// withoutGroup says how a limit is held where no cgroup holds it; see planLimits.
var withoutGroup = map[limits.Limit]string{
	limits.Memory: limits.Sampled + ", over all processes together",
	limits.CPUs:   "sched_setaffinity, whole numbers only",
	limits.PIDs:   "rlimit RLIMIT_NPROC, for each command alone",
}

// checkCgroups says by what each limit is held on this machine.
func (b *backend) checkCgroups(ctx context.Context) []sdk.Finding {
	support := b.support()
	f := sdk.Finding{Name: "cgroups", Status: sdk.SeverityOK, Detail: support.String()}
	switch {
	case support.Mechanism == limits.Rlimit:
		f.Status = sdk.SeverityWarning
		f.Detail = "this user cannot write to any: memory is sampled, and the limits below are weaker"
		f.Fix = support.Limits[limits.CPUs].Fix
	default:
		if err := support.Try(ctx); err != nil {
			f.Status, f.Detail = sdk.SeverityError, fmt.Sprintf("%s: making a group fails: %v", support, err)
		}
	}
	out := []sdk.Finding{f}
	for _, l := range []limits.Limit{limits.Memory, limits.CPUs, limits.PIDs} {
		how := support.Limits[l]
		f := sdk.Finding{Name: "limit " + string(l), Status: sdk.SeverityOK, Detail: how.By}
		if how.Scope != limits.WholeGroup {
			f.Status, f.Detail, f.Fix = sdk.SeverityWarning, withoutGroup[l], how.Fix
			if support.Mechanism != limits.Rlimit { // else the finding above has the reason of all three
				f.Detail += ": " + how.Reason
			}
		}
		out = append(out, f)
	}
	return out
}

// trySandbox makes a sandbox, whose state lies below dir.
func (b *backend) trySandbox(ctx context.Context, dir string, spec sdk.Spec, name, detail string) (*sandbox,
	sdk.Finding) {
	f := sdk.Finding{Name: name, Status: sdk.SeverityOK, Detail: detail}
	s, err := b.trial(ctx, dir, spec, name)
	if err != nil {
		return nil, failed(f, err)
	}
	return s, f
}

// trial makes a sandbox to try something in, whose state lies below dir.
func (b *backend) trial(ctx context.Context, dir string, spec sdk.Spec, name string) (*sandbox, error) {
	state, err := os.MkdirTemp(dir, "state-")
	if err != nil {
		return nil, err
	}
	return create(ctx, &sdk.CreateRequest{
		Spec: spec, ID: fmt.Sprintf("check-%d-%s", os.Getpid(), name), StateDir: state,
		Allocated: func(sdk.Handle) error { return nil },
	}, b.support(), nil)
}

// insideScript prints what a command finds itself in; the words before the colon
// are those of checkInside.
const insideScript = `while read -r key value rest; do echo "$key$value"; done < /proc/self/status
for i in python3 node bash perl ruby go; do p=$(command -v $i) && echo "have:$i=$p"; done; exit 0`

// interpreters are those that run files of a language by default.
var interpreters = []struct{ program, pkg string }{{"python3", "python3"}, {"node", "nodejs"}}

// checkInside runs one command and reads off its own guards.
func checkInside(ctx context.Context, s *sandbox) []sdk.Finding {
	f := sdk.Finding{Name: "command", Status: sdk.SeverityOK,
		Detail: "runs with no capability, no new privileges and the system call filter"}
	text, err := s.capture(ctx, insideScript)
	if err != nil {
		return []sdk.Finding{failed(f, err)}
	}
	for _, want := range []string{"CapEff:0000000000000000", "CapBnd:0000000000000000", "NoNewPrivs:1", "Seccomp:2"} {
		if !strings.Contains(text, want+"\n") {
			f.Status, f.Detail = sdk.SeverityError, "a command's /proc/self/status does not say "+want
			f.Fix = "this kernel lacks what the sandbox rests on; use another machine or backend"
		}
	}
	out := []sdk.Finding{f}
	for _, i := range interpreters {
		f := sdk.Finding{Name: "interpreter " + i.program, Status: sdk.SeverityOK}
		_, rest, found := strings.Cut(text, "have:"+i.program+"=")
		if found {
			f.Detail, _, _ = strings.Cut(rest, "\n")
		} else {
			f.Status = sdk.SeverityWarning
			f.Detail = "not below /usr, which is all that a sandbox sees of the system"
			f.Fix = "apt-get install " + i.pkg + ", or bind the directory it is in with ro_bind"
		}
		out = append(out, f)
	}
	return out
}

// capture runs a shell script and returns what it printed.
func (s *sandbox) capture(ctx context.Context, script string) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		w.Close()
		return "", err
	}
	defer null.Close()
	var text bytes.Buffer
	read := make(chan error, 1)
	go func() {
		_, err := text.ReadFrom(r)
		read <- err
	}()
	exit, err := s.Exec(ctx, &sdk.Command{Argv: []string{"/bin/sh", "-c", script}, Stdin: null, Stdout: w, Stderr: null})
	w.Close()
	if err == nil {
		err = <-read
	}
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("a command in the sandbox ended with %d: %s", exit.Code, exit.Evidence)
	}
	return text.String(), err
}

// failed turns an error into a finding.
func failed(f sdk.Finding, err error) sdk.Finding {
	f.Status, f.Detail = sdk.SeverityError, err.Error()
	if e, ok := asError(err); ok {
		if f.Detail = e.Summary; e.Fix != askDoctor {
			f.Fix = e.Fix
		} else {
			f.Fix = "let this user make user namespaces and mount in them, or use another backend: hutch backend list"
		}
		if e.Detail != "" {
			f.Detail += ": " + e.Detail
		}
	}
	return f
}
