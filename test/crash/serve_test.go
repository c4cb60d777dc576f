package crash

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestKilledResident kills clients of `hutch serve`, its workers, and itself, at random moments. Every sandbox must die by
// itself, `hutch gc` leave nothing, and every run whose client ended with 0 have its result.
func TestKilledResident(t *testing.T) {
	e2e.Require(t, "bwrap")
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) { newUser(t, uid).killedResident(t) })
	}
}

func (u *user) killedResident(t *testing.T) {
	u.hutch(t, 0, "serve", "--detach") // makes its directory, which stays
	u.hutch(t, 0, "serve", "--stop")
	before := u.traces(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	u.hutch(t, 0, "serve", "--detach")
	u.hutch(t, 0, u.runArgs("true")...)
	start := time.Now()
	u.hutch(t, 0, u.runArgs("true")...)
	whole := time.Since(start)

	acknowledged, lost := 2, 0
	for i := range kills {
		payload := "true"
		if i%2 == 1 {
			payload = "echo " + u.marker + "; sleep 60"
		}
		resident := u.resident()
		if resident == 0 {
			u.hutch(t, 0, "serve", "--detach")
			resident = u.resident()
		}
		cmd := u.command(u.runArgs(payload)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.NewTimer(time.Duration(random.Int64N(int64(whole) * 3 / 2)))
		<-timer.C // the moment is the point of the test, not a way to wait for anything
		kill := func(pid int) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		workers := children(resident)
		switch i / 2 % 3 {
		case 0:
			_ = cmd.Process.Kill()
		case 1:
			for _, pid := range workers {
				kill(pid)
			}
		case 2:
			kill(resident)
		}
		if i%2 == 1 && i/2%3 != 0 { // its command would go on for a minute, as it must
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
		switch code := cmd.ProcessState.ExitCode(); code {
		case 0:
			acknowledged++
		case 125:
			lost++
		}
	}
	if u.resident() != 0 {
		u.hutch(t, 0, "serve", "--stop")
	}
	t.Logf("%d runs were acknowledged, %d workers died on the way", acknowledged, lost)
	if lost < kills/40 {
		t.Errorf("only %d workers died while they executed a command: this proves little", lost)
	}
	if !e2e.Eventually(time.Minute, func() bool { return len(e2e.Marked(u.marker)) == 0 && len(u.plugins()) == 0 }) {
		for _, pid := range append(e2e.Marked(u.marker), u.plugins()...) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("still runs: %d %q", pid, b)
		}
		e2e.KillMarked(u.marker)
	}
	u.hutch(t, 0, "gc")
	if diff := cmp.Diff(before, u.traces(t)); diff != "" {
		t.Errorf("gc left something (-before +after):\n%s", diff)
	}
	u.nothingForGC(t)
	u.hutch(t, 0, "audit", "verify")
	out, err := u.command("runs", "-o", "json", "--limit", "0").Output()
	if err != nil {
		t.Fatal(err)
	}
	well := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var r struct {
			Cause string `json:"cause"`
			OK    bool   `json:"ok"`
		}
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.OK && r.Cause == "exited" {
			well++
		}
	}
	if well < acknowledged {
		t.Errorf("%d runs were acknowledged and %d have a result", acknowledged, well)
	}
}

// resident is the process of `hutch serve`, 0 when it does not run.
func (u *user) resident() int {
	out, _ := u.command("serve", "--status").Output()
	if m := regexp.MustCompile(`process (\d+)`).FindSubmatch(out); m != nil {
		pid, _ := strconv.Atoi(string(m[1]))
		return pid
	}
	return 0
}

func children(pid int) (pids []int) {
	out, _ := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	for _, f := range strings.Fields(string(out)) {
		child, _ := strconv.Atoi(f)
		pids = append(pids, child)
	}
	return pids
}
