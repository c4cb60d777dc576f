package main

// The files standin_* are a stand-in for limactl and its virtual machines, for tests where neither can be: without KVM,
// without an image, without a network.
//
// The program that stands in is the test binary itself, under the name limactl (runStandIn sees to that). What it
// prints, how it exits, and what it does with what nobody expects was taken from Lima 2.2: the errors that are
// warnings, the start of a VM that does not exist, the state Running that says nothing of readiness. Its "VMs" are
// namespaces of this machine, with a disk that outlives a stop, the shared directory, and a login by a real sshd with a real ssh.config
// and a control master. Root in there is root of the namespaces only as far as the tests' user is. Each has a network
// of its own, whose ports come to this machine by the instance's rules and Lima's own one behind them, which is for
// every port.
//
// What it cannot stand in for: a kernel of the guest's own, the mounts of 9p and their times, images, cloud-init.
//
// # Users
//
// limactl refuses root, and so does the stand-in. Where root runs the tests, [runStandIn] runs them as an ordinary user
// instead, and stays itself as what a hypervisor is: who starts guests that have rights which their owner has not, such
// as cgroups. For an ordinary user guests are user namespaces, without cgroups.

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// ordinaryUser is for whom root runs the tests; HUTCH_TEST_ROOTLESS_USER names another one.
const ordinaryUser = "hutch-test"

// Variables by which the test processes know each other.
const (
	baseVariable    = "HUTCH_TEST_LIMATEST" // the directory of all that the stand-in makes
	skippedVariable = "HUTCH_TEST_LIMA_SKIP"
	// realVariable, when set to 1, has the tests use the real limactl.
	realVariable = "HUTCH_TEST_LIMA"
)

// programs are the names under which the test binary is something else.
var programs = map[string]func(args []string) error{
	"limactl":          limactlMain,
	"limatest-machine": machineMain,
	"limatest-guest":   guestMain,
	"limatest-enter":   enterMain,
	"sudo":             sudoMain,
}

// isStandIn says whether this process is one of the stand-in's programs and no test.
func isStandIn() bool { return programs[filepath.Base(os.Args[0])] != nil }

// runStandIn runs the tests of a package, or the stand-in's program that this process is, and returns the exit code; call it
// in TestMain.
func runStandIn(m *testing.M) int {
	if isStandIn() {
		run := programs[filepath.Base(os.Args[0])]
		err := run(os.Args[1:])
		var code exitCode
		switch {
		case errors.As(err, &code):
			return int(code)
		case err != nil:
			fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
			return 1
		}
		return 0
	}
	return runTests(m)
}

// exitCode ends a program with its own code, without a word.
type exitCode int

func (c exitCode) Error() string { return "exit code " + strconv.Itoa(int(c)) }

func runTests(m *testing.M) int {
	switch {
	case os.Getenv(realVariable) == "1": // a real VM may take longer to boot than all of the tests take without one; -timeout bounds them
		flag.Parse()
		if err := flag.Set("test.parallel", "1"); err != nil { // there is one VM for all, which some stop
			return fail(err)
		}
		return m.Run()
	case os.Getenv(baseVariable) != "":
		return m.Run()
	case slices.Contains(os.Args, "-update"): // golden files are written by their owner
		if err := os.Setenv(skippedVariable, "golden files are rewritten"); err != nil {
			return fail(err)
		}
		return m.Run()
	}
	base, err := os.MkdirTemp("/tmp", "hl-") // short: sockets lie in it
	if err != nil {
		return fail(err)
	}
	defer removeOpened(base)
	if err := setUp(base); err != nil {
		return fail(err)
	}
	if os.Geteuid() != 0 {
		defer stopAll(filepath.Join(base, "l"))
		for name, value := range environment(base) {
			if err := os.Setenv(name, value); err != nil {
				return fail(err)
			}
		}
		return m.Run()
	}
	return runAsOrdinaryUser(base)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "limatest:", err)
	return 1
}

// bin is the directory of the stand-in's programs.
func bin(base string) string { return filepath.Join(base, "bin") }

// environment is what a test process has besides.
func environment(base string) map[string]string {
	return map[string]string{
		baseVariable: base, "LIMA_HOME": filepath.Join(base, "l"), "HUTCH_HOME": filepath.Join(base, "h"), "HOME": filepath.Join(base, "home"),
		"TMPDIR": filepath.Join(base, "tmp"), "PATH": bin(base) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
}

// setUp makes the directories, and copies the test binary to where everybody can execute it.
func setUp(base string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Chmod(base, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{bin(base), filepath.Join(base, "l"), filepath.Join(base, "h"), filepath.Join(base, "home"), filepath.Join(base, "tmp")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	program := filepath.Join(bin(base), "lima.test")
	if err := copyFile(self, program); err != nil {
		return err
	}
	for name := range programs {
		if err := os.Symlink("lima.test", filepath.Join(bin(base), name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(base, "owner"), []byte(noteOf(os.Getpid())), 0o644)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// runAsOrdinaryUser runs this test binary once more, as somebody else, and guests for it.
func runAsOrdinaryUser(base string) int {
	name := ordinaryUser
	if n := os.Getenv("HUTCH_TEST_ROOTLESS_USER"); n != "" {
		name = n
	}
	skip := ""
	uid, gid := 65534, 65534
	if u, err := user.Lookup(name); err != nil {
		skip = fmt.Sprintf("limactl refuses root, and there is no user %s to be instead (useradd --create-home %s): %v", name, name, err)
	} else {
		uid, _ = strconv.Atoi(u.Uid)
		gid, _ = strconv.Atoi(u.Gid)
	}
	for _, dir := range []string{"l", "h", "home", "tmp"} {
		if err := os.Chown(filepath.Join(base, dir), uid, gid); err != nil {
			return fail(err)
		}
	}
	h, err := startHypervisor(base, uid)
	if err != nil {
		return fail(err)
	}
	defer h.close()
	cmd := exec.Command(filepath.Join(bin(base), "lima.test"))
	for _, a := range os.Args[1:] {
		if !strings.HasPrefix(a, "-test.testlogfile") && !strings.HasPrefix(a, "-test.coverprofile") && !strings.HasPrefix(a, "-test.gocoverdir") {
			cmd.Args = append(cmd.Args, a)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.Env = []string{"USER=" + name, "LANG=C.UTF-8", "GODEBUG=" + os.Getenv("GODEBUG"), "HUTCH_TEST_REQUIRE=" + os.Getenv("HUTCH_TEST_REQUIRE"),
		"HUTCH_TEST_CHECKS=" + os.Getenv("HUTCH_TEST_CHECKS"), skippedVariable + "=" + skip}
	for name, value := range environment(base) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "HUTCH_TEST_LIMA_GUEST=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	case err != nil:
		return fail(err)
	}
	return 0
}

// needStandIn skips the test where the stand-in, or the real limactl that was asked for, cannot work, and fails it where
// HUTCH_TEST_REQUIRE names ssh.
func needStandIn(t testing.TB) {
	t.Helper()
	if os.Getenv(realVariable) == "1" {
		return
	}
	why := os.Getenv(skippedVariable)
	for _, program := range []string{"ssh", "sshd", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil && why == "" {
			why = err.Error()
		}
	}
	if why == "" {
		return
	}
	required := strings.FieldsFunc(os.Getenv("HUTCH_TEST_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' })
	if slices.Contains(required, "ssh") {
		t.Fatalf("the stand-in for limactl is required: %s", why)
	}
	t.Skip(why)
}

// stopAll ends all VMs below a LIMA_HOME, and removes their disks.
func stopAll(home string) {
	for _, name := range instances(home) {
		i := &vm{name: name, home: home}
		if err := errors.Join(i.halt(), i.remove()); err != nil {
			fmt.Fprintln(os.Stderr, "limatest:", err)
		}
	}
}

// removeOpened removes a directory with what its owner closed to itself.
func removeOpened(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// alive says whether the process that was noted as "PID STARTTIME" lives.
func alive(note string) bool {
	pid, _, _ := strings.Cut(note, " ")
	n, err := strconv.Atoi(pid)
	return err == nil && noteOf(n) == strings.TrimSpace(note)
}

// noteOf identifies a process, as "PID STARTTIME"; "" of one that has ended.
func noteOf(pid int) string {
	s, err := procstat.Of(pid)
	if err != nil || s.Dead() {
		return ""
	}
	return fmt.Sprintf("%d %d", pid, s.Start)
}

// enterMain is what sshd runs for every session: it has the guest run what the client asked for.
func enterMain(args []string) error {
	if len(args) != 1 {
		return errors.New("want the guest's socket")
	}
	return inGuest(args[0], &sessionRequest{Line: os.Getenv("SSH_ORIGINAL_COMMAND")})
}

// sudoMain is sudo in a guest, for the user who may do everything: sudo -n -- COMMAND.
func sudoMain(args []string) error {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		end := args[0] == "--"
		if args[0] != "-n" && !end {
			return fmt.Errorf("the stand-in for sudo knows no %s", args[0])
		}
		if args = args[1:]; end {
			break
		}
	}
	if len(args) == 0 {
		return errors.New("there is no command")
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	return inGuest(sudoSocket, &sessionRequest{Argv: args, Dir: dir})
}

// inGuest has a guest run something on this process's streams, and ends as that did.
func inGuest(socket string, req *sessionRequest) error {
	signal.Ignore(syscall.SIGPIPE)
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := send(c, req, os.Stdin, os.Stdout, os.Stderr); err != nil {
		return err
	}
	// What runs in the guest has them now. As long as we had them too, nobody would see it close them.
	for _, f := range []*os.File{os.Stdin, os.Stdout} {
		f.Close()
	}
	end := sessionEnd{}
	if err := json.NewDecoder(c).Decode(&end); err != nil {
		return fmt.Errorf("the guest is gone: %w", err)
	}
	if end.Err != "" {
		fmt.Fprintln(os.Stderr, end.Err)
	}
	if end.Signal != 0 {
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), syscall.Signal(end.Signal))
		select {}
	}
	if end.Code != 0 {
		return exitCode(end.Code)
	}
	return nil
}
