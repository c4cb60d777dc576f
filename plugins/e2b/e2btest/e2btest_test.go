package e2btest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

// TestMain sees to it that nothing of the sandboxes outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if binaries != "" {
		os.RemoveAll(filepath.Dir(binaries))
	}
	if left := children(); code == 0 && len(left) > 0 && os.Getenv("HUTCH_TEST_ENVD") == "" { // that one may be our child too
		fmt.Fprintf(os.Stderr, "processes %v are left\n", left)
		code = 1
	}
	os.Exit(code)
}

// children returns the processes that this one has started and not waited for.
func children() []string {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	var out []string
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		out = append(out, strings.Fields(string(b))...)
	}
	return out
}

// outcome is all that a command's stream had.
type outcome struct {
	pid            uint32
	stdout, stderr string
	end            *process.ProcessEvent_EndEvent
	err            error
}

// run runs a shell script as the user, "" being the default one, to its end.
func (c *client) run(t *testing.T, id, user, script string) outcome {
	t.Helper()
	ctx, call := connect.NewClientContext(context.Background())
	req := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}, Stdin: new(bool)}
	if user != "" {
		call.RequestHeader().Set("Authorization", basic(user))
	}
	stream, err := c.process(id).Start(ctx, req)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer stream.Close()
	var o outcome
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Start:
			o.pid = e.Start.GetPid()
		case *process.ProcessEvent_Data:
			o.stdout += string(e.Data.GetStdout())
			o.stderr += string(e.Data.GetStderr())
		case *process.ProcessEvent_End:
			o.end = e.End
		}
	}
	o.err = stream.Err()
	return o
}

func TestCommand(t *testing.T) {
	c, id := daemonOf(t)
	o := c.run(t, id, "", `echo hello $(whoami) $PWD; echo err >&2; exit 3`)
	if o.stdout != "hello user /home/user\n" || o.stderr != "err\n" || o.end.GetExitCode() != 3 || !o.end.GetExited() || o.end.GetStatus() != "exit status 3" || o.end.GetError() != "exit status 3" || o.err != nil {
		t.Errorf("%+v", o)
	}
	o = c.run(t, id, "root", `echo $(whoami) $HOME $PWD; touch /root/x && stat -c %U /root/x`)
	if o.stdout != "root /root /home/user\nroot\n" || o.end.GetExitCode() != 0 || o.end.Error != nil {
		t.Errorf("as root: %+v", o)
	}
	o = c.run(t, id, "", `exec no-such-program`)
	if o.end.GetExitCode() != 127 {
		t.Errorf("a program that is not there: %+v", o)
	}
	o = c.run(t, id, "nobody-of-that-name", `true`)
	if connect.CodeOf(o.err) != connect.CodeUnauthenticated {
		t.Errorf("an unknown user: %+v", o)
	}
}

// TestWalls looks at what a sandbox sees of the machine.
func TestWalls(t *testing.T) {
	c := newClient(t, e2btest.ForTest(t, e2btest.Options{}))
	id := c.create(t, nil)
	for name, script := range map[string]string{
		"processes":        `test $(ls -d /proc/[0-9]* | wc -l) -lt 12`,
		"network":          `test "$(grep -c : /proc/net/dev)" = 1 && grep -q lo: /proc/net/dev`,
		"no capabilities":  `grep -q 'CapEff:.0000000000000000' /proc/self/status && grep -q 'CapBnd:.0000000000000000' /proc/self/status`,
		"kernel settings":  `! test -w /proc/sys/kernel/hostname && ! test -w /proc/sys/kernel/core_pattern`,
		"system read-only": `! touch /usr/x 2>/dev/null`,
		"private keys":     `! test -e /etc/ssl/private && ! test -e /etc/pki/tls/private`,
		"E2B's variables":  `test "$E2B_SANDBOX" = true && test -n "$E2B_SANDBOX_ID" && test "$E2B_TEMPLATE_ID" = base`,
		"own root":         `! test -e /root/.ssh && ! test -e /etc/shadow && ! test -e /sys/kernel`,
	} {
		for _, user := range []string{"user", "root"} {
			if name == "no capabilities" && user == "root" {
				continue // root has those of its own user namespace
			}
			if o := c.run(t, id, user, script); o.end.GetExitCode() != 0 || o.err != nil {
				t.Errorf("%s, as %s: %+v", name, user, o)
			}
		}
	}
	if o := c.run(t, id, "root", `mount -o remount,rw /usr 2>&1 || umount /proc/sys 2>&1`); o.end.GetExitCode() == 0 {
		t.Errorf("root unmounts: %+v", o)
	}
	other := c.create(t, nil)
	if o := c.run(t, id, "", `echo mine > /tmp/x`); o.end.GetExitCode() != 0 {
		t.Errorf("%+v", o)
	}
	if o := c.run(t, other, "", `cat /tmp/x`); o.end.GetExitCode() == 0 || strings.Contains(o.stdout, "mine") {
		t.Errorf("one sandbox sees the files of another: %+v", o)
	}
}
