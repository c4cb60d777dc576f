package mcp

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/internal/testbackend"
)

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m)) }

func TestTools(t *testing.T) {
	for _, apply := range []bool{false, true} {
		w := newWorld(t, func(o *Options) {
			if apply {
				o.Ledger = review.NewLedger(t.TempDir(), nil)
			}
		})
		list, err := w.client.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			a := tool.Annotations
			if tool.InputSchema == nil || tool.OutputSchema == nil || tool.Title == "" || tool.Description == "" || a == nil || a.OpenWorldHint == nil || *a.OpenWorldHint {
				t.Errorf("%s is not described in full", tool.Name)
			}
			reading := slices.Contains([]string{"list_sandboxes", "sandbox_status", "job_output", "list_files", "stat_file", "read_file", "grep", "diff"}, tool.Name)
			if a.ReadOnlyHint != reading {
				t.Errorf("%s: read only is %v", tool.Name, a.ReadOnlyHint)
			}
		}
		slices.Sort(names)
		want := "apply_patch create_sandbox destroy_sandbox diff edit_file exec grep job_output list_files list_sandboxes read_file remove_file reset_sandbox sandbox_status stat_file stop_job write_file"
		if apply {
			want = "apply " + want
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("the tools are %s, want %s", got, want)
		}
	}
}

// Clients get what the server was started with, and the backend of the test cannot hold it.
func TestAllowHosts(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.AllowHosts = []string{"a.example:443", "*.b.example"} })
	for _, tc := range []struct {
		in  m
		bad string
	}{
		{m{"network": true}, `allow_hosts may name ["a.example:443" "*.b.example"]`},
		{m{"allow_hosts": []string{"a.example:443", "a.example"}}, `lets no sandbox reach "a.example"; allow_hosts may name ["a.example:443" "*.b.example"]`},
		{m{"allow_hosts": []string{"*.b.example"}}, "use a backend that filters the network"},
	} {
		w.call("create_sandbox", tc.in, nil, tc.bad)
	}
	w = newWorld(t, func(o *Options) { o.Network = true })
	w.call("create_sandbox", m{"allow_hosts": []string{"c.example:x"}}, nil, `allow_hosts: "c.example:x": invalid port "x"`)
	w.call("create_sandbox", m{"allow_hosts": []string{"c.example"}}, nil, "use a backend that filters the network")
}

func TestLife(t *testing.T) {
	w := newWorld(t, nil)
	w.call("exec", m{"sandbox": "box", "command": "true"}, nil, `there is no sandbox "box" here`)
	name := w.create(m{"name": "box"})
	w.call("create_sandbox", m{"name": "box"}, nil, "box")
	w.call("create_sandbox", m{"name": "not a name"}, nil, "name")
	w.call("create_sandbox", m{"workspace": "/etc"}, nil, "makes no sandbox on")
	w.call("create_sandbox", m{"network": true}, nil, "--allow-network")
	w.call("create_sandbox", m{"allow_hosts": []string{"a.example"}}, nil, "--allow-host")
	var l listOut
	w.call("list_sandboxes", m{}, &l, "")
	if len(l.Sandboxes) != 1 || l.Sandboxes[0].Name != name || l.Sandboxes[0].Workspace != w.project || !l.Sandboxes[0].Made {
		t.Errorf("the list is %+v", l)
	}
	w.sh(name, "echo x > new.txt")
	var st statusOut
	w.call("sandbox_status", m{"sandbox": name}, &st, "")
	if st.State != "ready" || st.Changes == nil || st.Changes.Entries != 1 || len(st.Jobs) != 1 || len(st.Limits) == 0 {
		t.Errorf("the status is %+v", st)
	}
	w.call("reset_sandbox", m{"sandbox": name}, nil, "")
	if got := w.sh(name, "cat new.txt").Stdout.Text; got != "x\n" {
		t.Errorf("after a reset: %q", got)
	}
	w.call("reset_sandbox", m{"sandbox": name, "hard": true}, nil, "")
	if out := w.sh(name, "cat new.txt"); out.OK {
		t.Errorf("after a hard reset: %+v", out)
	}
	var gone destroyedOut
	w.call("destroy_sandbox", m{"sandbox": name}, &gone, "")
	if !gone.Destroyed {
		t.Error("not destroyed")
	}
	w.call("destroy_sandbox", m{"sandbox": name}, &gone, "")
	if gone.Destroyed {
		t.Error("destroyed twice")
	}
}

// What was not made here is as good as not there, unless it is named, and stays either way.
func TestOthersSandboxes(t *testing.T) {
	var named []string
	w := newServer(t, nil)
	other, err := w.Server.create(t.Context(), createIn{Name: "others"})
	if err != nil {
		t.Fatal(err)
	}
	o := w.o
	for range 2 {
		o.Sandboxes = named
		s := New(o)
		ours, theirs := mcp.NewInMemoryTransports()
		go func() { _ = s.server.Run(t.Context(), ours) }()
		w.connect(theirs)
		var l listOut
		w.call("list_sandboxes", m{}, &l, "")
		if len(l.Sandboxes) != len(named) {
			t.Errorf("the list is %+v", l)
		}
		if named == nil {
			for _, c := range []struct {
				tool string
				args m
			}{
				{"exec", m{"command": "true"}}, {"read_file", m{"path": "a.txt"}}, {"write_file", m{"path": "a.txt", "content": ""}}, {"diff", m{}},
				{"sandbox_status", m{}}, {"reset_sandbox", m{}}, {"list_files", m{}}, {"grep", m{"pattern": "x"}},
			} {
				for _, ref := range []string{other.Name, other.ID, other.ID[:15]} {
					c.args["sandbox"] = ref
					w.call(c.tool, c.args, nil, "there is no sandbox")
				}
			}
		} else {
			w.sh(other.Name, "true")
			w.call("destroy_sandbox", m{"sandbox": other.Name}, nil, "hutch rm others removes it")
		}
		if left, err := s.Close(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("left %v %v", left, err)
		}
		if _, err := w.store.FindSandbox(other.Name); err != nil {
			t.Errorf("the other one: %v", err)
		}
		named = []string{other.Name}
	}
}

func TestCloseDestroys(t *testing.T) {
	for _, keep := range []bool{false, true} {
		w := newWorld(t, func(o *Options) { o.Keep = keep })
		name := w.create(m{})
		var out tools.ExecOut
		w.call("exec", m{"sandbox": name, "command": "echo on; sleep 1000", "background": true}, &out, "")
		left, err := w.Close(t.Context())
		if err != nil || (len(left) == 1) != keep {
			t.Errorf("keep %v: left %v %v", keep, left, err)
		}
		if _, err := w.store.FindSandbox(name); (err == nil) != keep {
			t.Errorf("keep %v: %v", keep, err)
		}
		if keep {
			if err := w.o.Manager.Remove(t.Context(), name, true); err != nil {
				t.Error(err)
			}
			w.made = map[string]bool{}
		}
	}
}

func TestExec(t *testing.T) {
	w := newWorld(t, nil)
	name := w.create(m{})
	var out tools.ExecOut
	w.call("exec", m{"sandbox": name, "argv": []string{"sh", "-c", `echo "$1 $V"; cat; echo err >&2; pwd; exit 3`, "sh", "arg"},
		"env": m{"V": "value"}, "stdin": "input\n", "workdir": "src"}, &out, "")
	if out.Running || out.OK || out.ExitCode == nil || *out.ExitCode != 3 || out.Cause != "exited" || out.Run == "" {
		t.Errorf("the job is %+v", out)
	}
	if !strings.HasPrefix(out.Stdout.Text, "arg value\ninput\n") || !strings.HasSuffix(out.Stdout.Text, "src\n") || out.Stderr.Text != "err\n" {
		t.Errorf("the output is %+v", out)
	}
	if rec, err := w.store.Load(out.Run); err != nil || rec == nil {
		t.Errorf("its record: %v", err)
	}
	w.call("exec", m{"sandbox": name}, nil, "either command")
	w.call("exec", m{"sandbox": name, "command": "true", "argv": []string{"true"}}, nil, "either command")
	w.call("exec", m{"sandbox": name, "command": "true", "timeout": "30"}, nil, "has no unit")
	w.call("exec", m{"sandbox": name, "command": "true", "timeout": 30}, nil,
		`the argument "timeout" must be a string, not a number: wall time after which it is ended, such as 90s or 5m`)
	w.call("exec", m{"sandbox": name, "command": "true", "env": m{"A=B": "x"}}, nil, "no name of a variable")
	out = tools.ExecOut{}
	w.call("exec", m{"sandbox": name, "argv": []string{"no-such-program"}}, &out, "")
	if out.OK || out.Cause != "setup_failed" || !strings.Contains(out.Evidence, "no-such-program") || out.ExitCode != nil {
		t.Errorf("a program that is not there: %+v", out)
	}
	w.call("exec", m{"sandbox": name, "command": "sleep 1000", "timeout": "100ms"}, &out, "")
	if out.Cause != "timeout" || out.OK {
		t.Errorf("a timeout: %+v", out)
	}
	w.call("job_output", m{"job": "job-99"}, nil, "there is no job")
}

func TestJobs(t *testing.T) {
	w := newWorld(t, nil)
	name := w.create(m{})
	var out tools.ExecOut
	w.call("exec", m{"sandbox": name, "command": "echo begun; while [ ! -e go ]; do sleep 0.05; done; seq 1 20000", "background": true}, &out, "")
	if !out.Running {
		t.Fatalf("the job is %+v", out)
	}
	w.call("write_file", m{"sandbox": name, "path": "go", "content": ""}, nil, "")
	w.call("job_output", m{"job": out.Job, "wait": "90s", "max_bytes": 1000}, &out, "")
	if out.Running || !out.OK || len(out.Stdout.Text) != 1000 || out.Stdout.Next != 1000 {
		t.Fatalf("the first page is %+v", out)
	}
	all := out.Stdout.Text
	for out.Stdout.Next < out.Stdout.Total {
		w.call("job_output", m{"job": out.Job, "stdout_offset": out.Stdout.Next, "max_bytes": 50_000}, &out, "")
		all += out.Stdout.Text
	}
	want := "begun\n"
	for i := range 20000 {
		want += fmt.Sprintln(i + 1)
	}
	if all != want {
		t.Errorf("%d bytes came in pages, want %d", len(all), len(want))
	}
	w.call("job_output", m{"job": out.Job, "stdout_offset": -1, "max_bytes": 6}, &out, "")
	if out.Stdout.Text != "20000\n" {
		t.Errorf("the end is %q", out.Stdout.Text)
	}
	w.call("exec", m{"sandbox": name, "command": "sleep 1000", "wait": "50ms"}, &out, "")
	if !out.Running {
		t.Fatalf("the job is %+v", out)
	}
	var stopped tools.JobOut
	w.call("stop_job", m{"job": out.Job}, &stopped, "")
	if stopped.Running || stopped.OK || stopped.Cause != "cancelled" {
		t.Errorf("stopped: %+v", stopped)
	}
	w.call("stop_job", m{"job": out.Job}, nil, "")
	w.call("exec", m{"sandbox": name, "command": "sleep 1000", "background": true}, &out, "")
	w.call("destroy_sandbox", m{"sandbox": name}, nil, "") // ends its jobs
}

// Whatever a client sends is answered, and the session goes on.
func TestBadCalls(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct {
		tool string
		args any
	}{
		{"no_such_tool", m{}}, {"exec", m{"sandbox": 1}}, {"exec", m{"sandbox": "x", "unknown": 1}}, {"exec", nil}, {"exec", []int{1}},
		{"read_file", m{"sandbox": strings.Repeat("x", 1<<16), "path": "\x00"}}, {"apply", m{"sandbox": "x"}},
	} {
		r, err := w.client.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		if err == nil && !r.IsError {
			t.Errorf("%s %.100v: no error", c.tool, c.args)
		}
	}
	w.call("list_sandboxes", m{}, nil, "")
}
