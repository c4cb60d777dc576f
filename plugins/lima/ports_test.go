package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// freePort is a port of this machine on which nothing listens.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// listen has a command in the sandbox listen on a port of an address, until the sandbox is removed.
func listen(t testing.TB, s *sandbox, address string, port int) {
	t.Helper()
	sh(t, s, `cat > listen.pl <<'END'
use IO::Socket::INET;
$s = IO::Socket::INET->new(Listen => 5, LocalAddr => $ARGV[0], LocalPort => $ARGV[1], ReuseAddr => 1) or die $!;
open(my $f, '>', 'listening'); close $f;
while ($c = $s->accept) { print $c "from the guest\n"; close $c }
END
rm -f listening`)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Exec(t.Context(), &sdk.Command{Argv: []string{"perl", "listen.pl", address, fmt.Sprint(port)}, Stdin: null, Stdout: null, Stderr: null})
		ended <- err
	}()
	t.Cleanup(func() { // by which the context has ended
		if err := <-ended; err != nil {
			t.Errorf("listen: %v", err)
		}
		null.Close()
	})
	await(t, "the command listens", func() string {
		_, exit, err := try(t, s, "test -e listening")
		if err != nil || exit.Code != 0 {
			return "it does not yet"
		}
		return ""
	})
}

// hostagentSays waits for a line of the VM's hostagent.
func hostagentSays(t testing.TB, vm, line string) {
	t.Helper()
	log := filepath.Join(os.Getenv("LIMA_HOME"), vm, "ha.stderr.log")
	await(t, "the hostagent says "+line, func() string {
		b, err := os.ReadFile(log)
		if err != nil || !strings.Contains(string(b), line) {
			return fmt.Sprintf("%v %s", err, b)
		}
		return ""
	})
}

// TestPortsStayInTheGuest connects from the host to what listens in a guest: with hutch's own VM nobody answers, on
// whatever address it listens. That Lima would have forwarded it shows a VM whose owner did not turn that off.
func TestPortsStayInTheGuest(t *testing.T) {
	standIn(t)
	full := func(r *sdk.CreateRequest) { r.Network = sdk.NetworkFull }
	t.Run("ours", func(t *testing.T) {
		name := vmName(t)
		b := newBackend()
		for _, address := range []string{"127.0.0.1", "0.0.0.0"} {
			s := mustCreate(t, b, config(name), full)
			port := freePort(t)
			listen(t, s.sandbox, address, port)
			hostagentSays(t, name, fmt.Sprintf("Not forwarding TCP %s:%d\n", address, port))
			for _, at := range []string{"127.0.0.1", "[::1]"} {
				c, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", at, port), 10*time.Second)
				if err == nil {
					c.Close()
				}
				if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EADDRNOTAVAIL) {
					t.Errorf("%s of the guest, by %s of the host: %v, want it refused", address, at, err)
				}
			}
		}
	})
	t.Run("theirs", func(t *testing.T) {
		name := vmName(t)
		file := filepath.Join(t.TempDir(), "lima.yaml")
		if err := os.WriteFile(file, []byte("cpus: 1\nmemory: 1GiB\nmounts: []\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		limactlDo(t, "create", "--name="+name, file)
		s := mustCreate(t, newBackend(), config(name), full)
		port := freePort(t)
		listen(t, s.sandbox, "127.0.0.1", port)
		hostagentSays(t, name, fmt.Sprintf("Forwarding TCP from 127.0.0.1:%d to 127.0.0.1:%d\n", port, port))
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if b, err := io.ReadAll(c); err != nil || string(b) != "from the guest\n" {
			t.Errorf("%q %v", b, err)
		}
	})
}
