package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const arch = runtime.GOARCH

// machineMain is the hostagent and QEMU of an instance in one: it has a guest and an sshd, and lives as long as both.
// Descriptor 3 is where it says how the boot goes.
func machineMain(args []string) error {
	runtime.LockOSThread() // the children's parent, whose end is theirs
	if len(args) != 2 {
		return errors.New("want LIMA_HOME NAME")
	}
	i := &vm{home: args[0], name: args[1]}
	tell := os.NewFile(3, "tell")
	say := func(format string, args ...any) { fmt.Fprintf(tell, format+"\n", args...) }
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE) // and not ignored, which sshd would inherit

	faults := i.faults()
	if faults.Die {
		return errors.New("exiting, as asked")
	}
	g, err := i.startGuest(faults.BootDelay)
	if err != nil {
		return fmt.Errorf("start the guest: %w", err)
	}
	defer g.end()
	say("Waiting for the essential requirement 1 of 3: `ssh`")
	sshd, err := i.startSSHD()
	if err != nil {
		return fmt.Errorf("start sshd: %w", err)
	}
	defer kill(sshd)
	master, err := i.startMaster()
	if err != nil {
		return fmt.Errorf("start ssh's control master: %w", err)
	}
	defer kill(master)
	say("The essential requirement 1 of 3 is satisfied")
	cfg, err := i.config()
	if err != nil {
		return err
	}
	go i.forwardPorts(cfg)
	if !faults.Never {
		select {
		case err := <-g.booted:
			if err != nil {
				return fmt.Errorf("boot: %w", err)
			}
			say("READY")
		case <-ended:
			return nil
		}
	}
	tell.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	owner, err := os.ReadFile(filepath.Join(filepath.Dir(self), "..", "owner"))
	if err != nil {
		return err
	}
	for {
		select {
		case <-ended:
			return nil
		case <-g.gone:
			return errors.New("the guest has ended")
		case <-tick.C:
			if !alive(string(owner)) { // the tests are over, in whatever way
				return nil
			}
		}
	}
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// startSSHD starts a real sshd whose every session is one in the guest.
func (i *vm) startSSHD() (*exec.Cmd, error) {
	program, err := exec.LookPath("sshd")
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	enter := filepath.Join(filepath.Dir(self), "limatest-enter")
	text := fmt.Sprintf(`ListenAddress 127.0.0.1:%d
HostKey %s
AuthorizedKeysFile %s
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding no
MaxSessions 10
MaxStartups 100
ForceCommand %s %s
`, i.port(), i.file("host_key"), filepath.Join(i.home, "_config", "user.pub"), enter, i.file("guest.sock"))
	if err := os.WriteFile(i.file("sshd_config"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-D", "-e", "-f", i.file("sshd_config"))
	cmd.Stderr, cmd.Dir = os.Stderr, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Minute); ; {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", i.port()))
		if err == nil {
			c.Close()
			return cmd, nil
		}
		if time.Now().After(end) {
			kill(cmd)
			return nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startMaster opens the connection that all sessions share, as Lima's hostagent does.
func (i *vm) startMaster() (*exec.Cmd, error) {
	_ = os.Remove(i.file("ssh.sock"))
	cmd := exec.Command("ssh", "-F", i.file("ssh.config"), "-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-o", "LogLevel=ERROR", "-N", "lima-"+i.name)
	var said bytes.Buffer
	cmd.Stderr, cmd.Dir = &said, "/"
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = cmd.Process.Wait() // what it said says more
		close(ended)
	}()
	for end := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(i.file("ssh.sock")); err == nil {
			return cmd, nil
		}
		select {
		case <-ended:
			return nil, fmt.Errorf("ssh ended: %s", strings.TrimSpace(said.String()))
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			kill(cmd)
			return nil, errors.New("it does not come up")
		}
	}
}
