package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// TestServiceEndsWhatNobodyKeeps is E2B-01: a machine has an end from the beginning, and the handle names it before it
// is used.
func TestServiceEndsWhatNobodyKeeps(t *testing.T) {
	local(t)
	h := newHost(t)
	var handles []place
	req := request(t, project(t, map[string]string{"a": "a"}), func(r *sdk.CreateRequest) {
		r.Allocated = func(got sdk.Handle) error {
			var p place
			if err := json.Unmarshal(got.Data, &p); err != nil {
				return err
			}
			handles = append(handles, p)
			return nil
		}
	})
	sb := h.box(req)
	if len(handles) != 2 || handles[0].Machine != "" || handles[0].Tag == "" || handles[1].Machine == "" || handles[1].Tag != handles[0].Tag {
		t.Errorf("the handles were %+v: want one that finds the machine by its tag before it is made, and one that names it", handles)
	}
	d, err := h.backend.clientFor(t).Get(t.Context(), handles[len(handles)-1].Machine)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(d.EndAt); left <= 0 || left > 6*time.Minute {
		t.Errorf("the service ends it in %s", left)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHalfMadeIsFoundByItsTag: the host died before it got the machine's name.
func TestHalfMadeIsFoundByItsTag(t *testing.T) {
	local(t)
	h := newHost(t)
	var first sdk.Handle
	sb := h.box(request(t, "", func(r *sdk.CreateRequest) {
		r.Allocated = func(got sdk.Handle) error {
			if first.ID == "" {
				first = got
			}
			return nil
		}
	}))
	other := newHost(t)
	if err := other.Destroy(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if left := mustFind(t, h, sb.ID()); len(left) != 0 {
		t.Errorf("the machines %v are left", left)
	}
}

// TestPausedIsResumed: a persistent sandbox that the service has paused is stopped, and goes on with the next command.
func TestPausedIsResumed(t *testing.T) {
	local(t)
	h := newHost(t)
	sb := h.box(request(t, project(t, map[string]string{"a.txt": "a\n"}), func(r *sdk.CreateRequest) { r.Keep = true }))
	must(t, sb, "echo more >> a.txt")
	ids := mustFind(t, h, sb.ID())
	if len(ids) != 1 {
		t.Fatalf("its machines are %v", ids)
	}
	pause := func() {
		t.Helper()
		for range 2 { // a second time is no error
			if err := h.backend.clientFor(t).Pause(t.Context(), ids[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	pause()
	other := newHost(t)
	again, err := other.Attach(t.Context(), sb.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if st, err := again.Inspect(t.Context()); err != nil || st.State != sdk.StateAsleep {
		t.Errorf("paused, and looked at only, it is %+v %v", st, err)
	}
	if got := must(t, again, "cat a.txt"); got != "a\nmore\n" {
		t.Errorf("after the pause the file is %q", got)
	}
	if st, err := again.Inspect(t.Context()); err != nil || st.State != sdk.StateReady {
		t.Errorf("resumed it is %+v %v", st, err)
	}
	ch, err := again.Changes(t.Context())
	if err != nil || len(ch) != 1 || ch[0].Path != "a.txt" || ch[0].Kind != sdk.ChangeModified {
		t.Errorf("the changes are %+v %v", ch, err)
	}
	// The process that thinks itself connected finds out, and goes on at the second call.
	pause()
	if r := sh(t, sb, "true"); r.err == nil {
		t.Errorf("a command in a machine that was just paused ended with %+v", r.exit)
	}
	if got := must(t, sb, "cat a.txt"); got != "a\nmore\n" {
		t.Errorf("then the file is %q", got)
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestKeyStaysHere is E2B-02, and that nothing secret is on the host's disk or in the daemon's log.
func TestKeyStaysHere(t *testing.T) {
	s := local(t)
	h := newHost(t)
	const secret = "a-secret-value-of-the-run"
	req := request(t, project(t, map[string]string{"a.txt": "a\n"}), func(r *sdk.CreateRequest) { r.Keep = true })
	sb := h.box(req)
	got := must(t, sb, `env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; gzip -dc /var/lib/hutch/base.tgz`, func(c *client.Command) { c.Env["TOKEN"] = secret })
	if strings.Contains(got, s.Key) {
		t.Error("the key is in the machine")
	}
	if !strings.Contains(got, secret) {
		t.Error("the command did not get its variable")
	}
	for _, r := range s.Requests() {
		if r.Sandbox != "" && (r.Header.Get("X-Api-Key") != "" || strings.Contains(r.Query, secret)) {
			t.Errorf("%s %s?%s has what it must not have", r.Method, r.Path, r.Query)
		}
	}
	files, _ := os.ReadDir(req.StateDir)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(req.StateDir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for what, text := range map[string]string{"the key": s.Key, "the run's secret": secret} {
			if strings.Contains(string(b), text) {
				t.Errorf("%s is in %s", what, f.Name())
			}
		}
	}
	if strings.Contains(string(sb.Handle().Data), s.Key) {
		t.Error("the key is in the handle")
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWhatIsSent: ignored files stay, and what is sent arrives with its modes, times and links.
func TestWhatIsSent(t *testing.T) {
	local(t)
	h := newHost(t)
	dir := project(t, map[string]string{".gitignore": "*.o\nbuild/\n", ".hutchignore": "big\n!keep.o\n", "a.o": "o", "keep.o": "k", "build/x": "x", "big": "b", "src/.gitignore": "gen\n", "src/gen": "g", "src/main.c": "m",
		"output/old": "o", "odd \xff name": "x"})
	when := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(dir, "src/main.c"), when, when); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "src/main.c"), 0o751); err != nil {
		t.Fatal(err)
	}
	list := "find . -type f | LC_ALL=C sort; stat -c '%a %Y' src/main.c"
	sb := h.box(request(t, dir))
	if got, want := must(t, sb, list), "./.gitignore\n./.hutchignore\n./keep.o\n./odd \xff name\n./output/old\n./src/.gitignore\n./src/main.c\n751 1580702706\n"; got != want {
		t.Errorf("what arrived is\n%s\nwant\n%s", got, want)
	}
	if ch, err := sb.Changes(t.Context()); err != nil || len(ch) != 0 {
		t.Errorf("before anything is done the changes are %+v %v", ch, err)
	}
	all := h.box(request(t, dir, func(r *sdk.CreateRequest) { r.Config = map[string]any{"gitignore": false} }))
	if got := must(t, all, "cat a.o build/x src/gen; test ! -e big && echo no big"); got != "oxgno big\n" {
		t.Errorf("without .gitignore there is %q", got)
	}
}

// TestLimitsOfTheTemplate: what the block says of the template is not believed, but asked.
func TestLimitsOfTheTemplate(t *testing.T) {
	local(t)
	h := newHost(t)
	lie := request(t, "", func(r *sdk.CreateRequest) {
		r.Limits.Memory = 128 << 20
		r.Config = map[string]any{"memory": "128MiB"}
	})
	_, err := h.Create(t.Context(), lie)
	if sdk.ReasonOf(err) != sdk.ReasonLimit || !strings.Contains(err.Error(), "the service says") {
		t.Errorf("a template that is said to be smaller than it is: %v", err)
	}
	if n := machines(t, h); n != 0 {
		t.Errorf("%d machines are left", n)
	}
	sb := h.box(request(t, "", func(r *sdk.CreateRequest) { r.Limits.Memory = 1 << 30; r.Limits.CPUs = 2 }))
	for _, hold := range sb.Ready().Holds {
		if hold.HeldBy != heldByTemplate && hold.Limit != sdk.LimitDisk {
			t.Errorf("%+v", hold)
		}
	}
	// Nobody asks: what the service says is the default, also where the block says something else.
	sb = h.box(request(t, "", func(r *sdk.CreateRequest) { r.Config = map[string]any{"memory": "128MiB", "disk": "3GiB"} }))
	got := map[sdk.Limit]string{}
	for _, hold := range sb.Ready().Holds {
		if !hold.Default || hold.HeldBy != heldByTemplate {
			t.Errorf("%+v", hold)
		}
		got[hold.Limit] = hold.Value
	}
	if got[sdk.LimitMemory] != "512MiB" || got[sdk.LimitCPUs] != "2" || got[sdk.LimitDisk] != "1GiB" {
		t.Errorf("the defaults are %v", got)
	}
}

// TestDoubtfulIsLookedFor counts the searches for a machine whose making was not answered.
func TestDoubtfulIsLookedFor(t *testing.T) {
	s := local(t)
	h := newHost(t)
	fault := s.Inject(e2btest.Fault{Method: "POST", Path: "/sandboxes", Drop: e2btest.Before, Times: -1})
	_, err := h.Create(t.Context(), request(t, ""))
	fault.Remove()
	if sdk.ReasonOf(err) != sdk.ReasonUnavailable {
		t.Errorf("%v", err)
	}
	if got := count(s, "GET", "/v2/sandboxes"); got < 2*len(lookAgain) {
		t.Errorf("it was looked for %d times", got)
	}
	if got := h.slept(); len(got) < 2*len(lookAgain) {
		t.Errorf("it waited %v", got)
	}
}

// TestNothingToAskWithoutKey: who tidies up must not fail for a service that its user does not have.
func TestNothingToAskWithoutKey(t *testing.T) {
	t.Setenv(envKey, "")
	h := newHost(t)
	if all, err := h.List(t.Context(), ""); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
	if _, err := h.Create(t.Context(), request(t, "")); sdk.ReasonOf(err) != sdk.ReasonDenied {
		t.Errorf("%v", err)
	}
}
