package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
)

// rootlessUser is the user for whom root runs the tests once more; HUTCH_TEST_ROOTLESS_USER names another one. It needs
// subordinate ids, as useradd gives them.
const rootlessUser = "hutch-test"

// startedFor is set in a test process that root started as the ordinary user.
const startedFor = "HUTCH_TEST_ROOTLESS_CHILD"

// TestAsOrdinaryUser runs tests of this package as an ordinary user, where it is root itself. An ordinary user's tests
// are rootless anyway.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	podmantest.Need(t)
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already: all tests of this package are rootless")
	}
	name := rootlessUser
	if n := os.Getenv("HUTCH_TEST_ROOTLESS_USER"); n != "" {
		name = n
	}
	u, err := user.Lookup(name)
	if err != nil {
		why := fmt.Sprintf("there is no user %s to be rootless as: %v (useradd --create-home %s)", name, err, name)
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "podman") {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	dir, err := os.MkdirTemp("/var/tmp", "hutch-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, home, temp := filepath.Join(dir, "podman.test"), filepath.Join(dir, "home"), filepath.Join(dir, "tmp")
	// A copy that this process wrote would be busy while a child of a parallel test has its descriptor.
	for _, err := range []error{
		os.Chmod(dir, 0o755), exec.Command("cp", self, program).Run(), os.Mkdir(home, 0o700), os.Mkdir(temp, 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := podmantest.OwnStorage(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{home, filepath.Join(home, "run"), temp} {
		if err := os.Chown(at, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	which := "^(" + strings.Join(rootlessTests, "|") + ")$"
	if few := os.Getenv("HUTCH_TEST_ROOTLESS_RUN"); few != "" { // to look at a few while working on them
		which = few
	}
	args := []string{"-test.run=" + which, "-test.timeout=8m", "-test.v=" + strconv.FormatBool(testing.Verbose())}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.Env = append(own, "USER="+name, "PATH="+os.Getenv("PATH"), "TMPDIR="+temp,
		startedFor+"=1", testAgentVariable+"="+os.Getenv(testAgentVariable), "HUTCH_TEST_REQUIRE="+os.Getenv("HUTCH_TEST_REQUIRE"), "HUTCH_TEST_CHECKS="+os.Getenv("HUTCH_TEST_CHECKS"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{uint32(gid), 4242}}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as %s: %v\n%s", name, err, out)
	} else if testing.Verbose() {
		t.Logf("as %s:\n%s", name, out)
	}
	if err := podmantest.EndStorage(home, cmd.Env, cmd.SysProcAttr); err != nil {
		t.Errorf("as %s: %v", name, err)
	}
}

// rootlessTests are run as an ordinary user too. The whole conformance suite is not, for its time.
var rootlessTests = []string{"TestOverlayStrategies", "TestLimitsAreRefused", "TestNumericUser",
	"TestNothingIsLeft", "TestGuards", "TestAttach", "TestS4SharedGit", "TestFilteredNetwork", "TestFilteredNetworkIsShared",
	"TestSandboxConformance"}
