package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// guestProgram is the name of the program that works in the guest. It lies beside the backend's own.
const guestProgram = "hutch-lima-guest"

// testGuestVariable names it in tests of this package; no other program looks at that.
const testGuestVariable = "HUTCH_TEST_LIMA_GUEST"

// guestBinary is that program, and where it goes in the guest: below a name that is its content's.
type guestBinary struct {
	host  string
	guest string
	size  int64
}

// findGuestProgram finds it and reads it once in the life of this process.
var findGuestProgram = sync.OnceValues(func() (*guestBinary, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := filepath.Join(filepath.Dir(self), guestProgram)
	if test := os.Getenv(testGuestVariable); test != "" && strings.HasSuffix(self, ".test") {
		p = test
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonMissing, "the program that works inside of VMs cannot be read: %w",
			err).WithFix("install hutch whole: make install puts it beside hutch-backend-lima")
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return nil, err
	}
	return &guestBinary{host: p, guest: "/usr/local/libexec/hutch/" + guestProgram + "-" +
		hex.EncodeToString(sum.Sum(nil)[:12]), size: n}, nil
})

// plainWord is what no shell changes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/=:+-]+$`)

// ssh makes the command that runs a command line in the guest, as Lima's user. What is in it is ours alone: no part of
// a sandbox's command ever is. Where the control master of Lima runs, this is one more session on its connection; we
// leave none of our own.
func ssh(ctx context.Context, i *limaout.Instance, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ssh", "-F", i.SSHConfigFile, "-T", "-o", "LogLevel=ERROR",
		"-o", "ControlMaster=no", "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "PermitLocalCommand=no", "-o",
		"SendEnv=-*",
		"-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8", i.Hostname, line)
	cmd.Dir = "/"
	cmd.WaitDelay = stopTime
	return cmd
}

// dial starts our program in the guest, having put it there where it is missing.
func dial(ctx context.Context, i *limaout.Instance, boot time.Duration, say progress) (*link, error) {
	bin, err := findGuestProgram()
	if err != nil {
		return nil, err
	}
	if want := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]; i.Arch != want {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "the VM %s is a machine of the kind %s, and hutch is here for %s only",
			i.Name, i.Arch, want)
	}
	for what, word := range map[string]string{"hostname": i.Hostname, "user": i.Config.User.Name} {
		if !plainWord.MatchString(word) || strings.HasPrefix(word, "-") {
			return nil, sdk.Errorf(sdk.ReasonUnsupported, "the %s of the VM %s is %q, which hutch does not pass on", what,
				i.Name, word)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, boot, sdk.Errorf(sdk.ReasonUnavailable,
		"the VM %s runs and did not answer within %s", i.Name, boot))
	defer cancel()
	installed := false
	for {
		l, err := serve(ctx, i, bin, boot)
		var none *silentError
		switch {
		case !errors.As(err, &none):
			return l, err
		case none.code == sshFailed && !strings.Contains(none.words, "Permission denied"):
			// It says that it runs as soon as its processes do, long before its sshd answers.
			say.say("waiting for the VM %s to answer", i.Name)
			timer := time.NewTimer(dialStep)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return nil, errors.Join(context.Cause(ctx), none)
			}
		case installed || none.code == sshFailed:
			return nil, sdk.Errorf(sdk.ReasonUnavailable, "%w", none).
				WithFix("see whether the VM's user may become root there: limactl shell %s sudo -n true", i.Name)
		default:
			if err := install(ctx, i, bin); err != nil {
				return nil, err
			}
			installed = true
		}
	}
}

// sshFailed is the code with which ssh ends when there is no connection.
const sshFailed = 255

// dialStep is the time between two attempts to reach a VM that boots.
const dialStep = 300 * time.Millisecond

// silentError is a guest that ran something else than our program.
type silentError struct {
	name  string
	words string
	code  int // of ssh
	err   error
}

func (e *silentError) Error() string {
	return fmt.Sprintf("hutch's program does not start in the VM %s: %v; it said: %s", e.name, e.err, e.words)
}

// serve starts our program in the guest.
func serve(ctx context.Context, i *limaout.Instance, bin *guestBinary, boot time.Duration) (*link, error) {
	life, kill := context.WithCancel(context.Background())
	cmd := ssh(life, i, fmt.Sprintf("exec sudo -n -- %s serve --user=%s --boot=%s", bin.guest, i.Config.User.Name, boot))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		kill()
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		kill()
		return nil, err
	}
	said := &supervise.Tail{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		kill()
		return nil, sdk.Errorf(sdk.ReasonMissing, "start ssh: %w",
			err).WithFix("install the OpenSSH client, which limactl needs too")
	}
	stop := context.AfterFunc(ctx, kill)
	hello, noise, err := wire.ReadHello(stdout)
	if !stop() || err != nil {
		if cause := context.Cause(ctx); cause != nil {
			kill()
			_ = cmd.Wait() // it was killed
			return nil, cause
		}
		_ = stdin.Close()
		timer := time.AfterFunc(stopTime, kill)
		_ = cmd.Wait() // its exit code is looked at
		timer.Stop()
		kill()
		return nil, &silentError{i.Name, strings.TrimSpace(noise + " " + said.String()), cmd.ProcessState.ExitCode(), err}
	}
	if hello.Err != nil || hello.Version != wire.Version {
		kill()
		_ = cmd.Wait()
		if hello.Err != nil {
			return nil, hello.Err
		}
		return nil,
			sdk.Errorf(sdk.ReasonInternal, "hutch's program in the VM speaks version %d of the protocol, and this one %d",
				hello.Version, wire.Version)
	}
	l := &link{name: i.Name, hello: hello, cmd: cmd, kill: kill, said: said, done: make(chan struct{})}
	if l.client, err = remote.NewClient(&pipes{stdout, stdin}); err != nil {
		kill()
		return nil, errors.Join(err, cmd.Wait())
	}
	go func() {
		<-l.client.Done()
		_ = stdin.Close() // and with that our program ends, and ssh
		timer := time.AfterFunc(stopTime, kill)
		_ = cmd.Wait() // how it ended says nothing that the end of the session did not
		timer.Stop()
		kill()
		close(l.done)
	}()
	return l, nil
}

// pipes are both directions of ssh.
type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p *pipes) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *pipes) Close() error                { return p.in.Close() }

// install puts our program into the guest. Only a whole one gets its name, and that after it is on the disk: a power
// cut would leave an empty one.
func install(ctx context.Context, i *limaout.Instance, bin *guestBinary) error {
	f, err := os.Open(bin.host)
	if err != nil {
		return err
	}
	defer f.Close()
	dir, name := filepath.Split(bin.guest)
	script := fmt.Sprintf(`set -e; umask 022; mkdir -p %[1]s; t=$(mktemp %[1]s.new.XXXXXX); cat > "$t"; test "$(wc -c < "$t")" -eq %[3]d; chmod 755 "$t"; sync "$t"; mv "$t" %[1]s%[2]s`, dir, name, bin.size)
	said := &supervise.Tail{}
	cmd := ssh(ctx, i, "exec sudo -n -- sh -c '"+script+"'")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = f, said, said
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return sdk.Errorf(sdk.ReasonUnavailable, "hutch's program cannot be copied into the VM %s: %w: %s", i.Name, err,
			said).
			WithFix("see whether the VM's user may become root there: limactl shell %s sudo -n true", i.Name)
	}
	return nil
}
