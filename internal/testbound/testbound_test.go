package testbound

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// hangs is set in the process that is to be ended.
const hangs = "HUTCH_TESTBOUND_HANGS"

func TestMain(m *testing.M) {
	bound := 5 * time.Minute
	if os.Getenv(hangs) != "" {
		bound = time.Second
	}
	os.Exit(Run(m, bound))
}

// TestHang waits for what does not come, in a process of its own: it is ended, and says where it hung.
func TestHang(t *testing.T) {
	if os.Getenv(hangs) != "" {
		waitForEver()
	}
	for args, want := range map[string]bool{"-test.run=^TestHang$": true, "-test.run=^TestHang$ -test.count=2 -test.timeout=2s": false} {
		cmd := exec.Command(os.Args[0], strings.Fields(args)...)
		cmd.Env = append(os.Environ(), hangs+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "waitForEver") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		if got := strings.Contains(string(out), "are not done after 1s"); got != want {
			t.Errorf("%s: bounded %v, want %v\n%s", args, got, want, out)
		}
	}
}

// waitForEver sleeps instead of blocking on a channel, which the runtime may call a deadlock.
func waitForEver() { time.Sleep(time.Hour) }
