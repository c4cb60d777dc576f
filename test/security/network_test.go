package security

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/test/e2e"
)

const (
	site         = "93.184.216.34" // of every name that has no other address
	allowedSite  = "192.88.1.5"    // a rule of the attacks names it
	attackSecret = "the-value-of-the-secret"
)

// internet answers for every address, in a separate network namespace: lookups, a few ports over TCP, echoes over
// UDP.
type internet struct {
	mu     sync.Mutex
	turned bool              // turns.example has been looked up
	heard  map[string][]byte // what carried the secret's value, by port
	open   sync.WaitGroup
}

var addressOf = map[string]string{
	"host": "127.0.0.1", "allowed.example": allowedSite, "private.example": "10.1.2.3", "linklocal.example": "169.254.1.1",
	"metadata.example": "169.254.169.254", "self.example": "127.0.0.1", "self6.example": "::1", "mapped.example": "::ffff:127.0.0.1",
	"zero.example": "0.0.0.0", "nat64.example": "64:ff9b::7f00:1", "sixtofour.example": "2002:7f00:1::", "cgnat.example": "100.64.0.1",
	"ula.example": "fd00::1", "testnet.example": "192.0.2.7", "multicast.example": "224.0.0.1",
}

// begin moves this thread, and what it starts, into the network of an internet, whose name server it uses.
func begin(t *testing.T) *internet {
	t.Helper()
	n := &internet{heard: map[string][]byte{}}
	must(t, unix.Unshare(unix.CLONE_NEWNET|unix.CLONE_NEWNS))
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""))
	for path, text := range map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.1\n", "/etc/hosts": "127.0.0.1 localhost\n"} {
		file := filepath.Join(t.TempDir(), "etc")
		must(t, os.WriteFile(file, []byte(text), 0o644))
		must(t, unix.Mount(file, path, "", unix.MS_BIND, ""))
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		_, dst, err := net.ParseCIDR(all)
		must(t, err)
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL,
			Scope: netlink.SCOPE_HOST}))
	}
	for _, port := range []string{"22", "53", "80", "81", "443", "853", "3128", "8001", "8443"} {
		l, err := net.Listen("tcp", ":"+port)
		must(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				n.open.Go(func() { n.serve(c.(*net.TCPConn), port) })
			}
		}()
	}
	for _, addr := range []string{"127.0.0.1:53", "9.9.9.9:53", "1.1.1.1:443", "198.18.1.0:443", "162.159.200.1:123"} {
		c, err := net.ListenPacket("udp", addr)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		go func() {
			buf := make([]byte, 4096)
			for {
				k, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				reply := slices.Clone(buf[:k])
				if strings.HasSuffix(addr, ":53") {
					reply = n.answer(reply)
				}
				_, _ = c.WriteTo(reply, from)
			}
		}()
	}
	return n
}

// serve answers whatever comes.
func (n *internet) serve(c *net.TCPConn, port string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 64<<10)
	k, err := c.Read(buf)
	if err != nil {
		return
	}
	if port == "53" {
		if k < 3 {
			_, _ = c.Write([]byte{0})
			return
		}
		reply := n.answer(buf[2:k])
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
		return
	}
	if bytes.Contains(buf[:k], []byte("ransfer-Encoding: chunked\r\n")) { // a body that breaks off is not answered
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		for err == nil && !bytes.HasSuffix(buf[:k], []byte("\r\n0\r\n\r\n")) {
			var more int
			more, err = c.Read(buf[k:])
			k += more
		}
		if errors.Is(err, io.EOF) {
			return
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	}
	status, to := "200 OK", ""
	switch {
	case bytes.HasPrefix(buf, []byte("PRI ")): // as servers do that speak HTTP/1.1
		status = "400 Bad Request: missing required Host header"
	case bytes.HasPrefix(buf, []byte("GET /away ")):
		status, to = "302 Found", "Location: http://other.example/\r\n"
	case bytes.HasPrefix(buf, []byte("GET /home ")):
		status, to = "302 Found", "Location: http://127.0.0.1:8001/\r\n"
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %s\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", status, to)
	_ = c.CloseWrite()
	rest, _ := io.ReadAll(io.LimitReader(c, 4<<20))
	if all := append(buf[:k], rest...); bytes.Contains(all, []byte(attackSecret)) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.heard[port] = append(n.heard[port], all...)
	}
}

// answer is the reply of the name server. Every name has an address, and every type a record.
func (n *internet) answer(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return query
	}
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	text, ok := addressOf[name]
	if !ok {
		text = site
	}
	if name == "turns.example" && q.Type == dnsmessage.TypeA {
		n.mu.Lock()
		if text = allowedSite; n.turned {
			text = "10.1.2.3"
		}
		n.turned = true
		n.mu.Unlock()
	}
	addr := netip.MustParseAddr(text)
	h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 0}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	switch {
	case q.Type == dnsmessage.TypeAAAA && !addr.Is4():
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
	case q.Type != dnsmessage.TypeAAAA && addr.Is4():
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}})
	}
	if q.Type == dnsmessage.TypeALL {
		m.Answers = append(m.Answers, m.Answers...)
	}
	out, _ := m.Pack()
	return out
}

// attackFile is the run of the attacks. The rules are those of TestAttacks in sdk/network/gate.
const attackFile = `run "attacks" {
  workspace { source = "." }
  command = ["./attacks"]
  env     = { GODEBUG = "netdns=go" }
  limits {
    timeout = "10m"
    files   = 12000
  }
  network {
    allow = [
      "allowed.example:80", "*.below.example", "host:8001", "192.88.1.5:80", "other-port.example:8443",
      "private.example", "linklocal.example", "metadata.example", "self.example", "self6.example", "mapped.example",
      "zero.example", "nat64.example", "testnet.example", "cgnat.example", "multicast.example", "ula.example",
      "sixtofour.example", "turns.example",
    ]
    deny = ["x.below.example"]
    secret "ATTACK_TOKEN" {
      from  = env("ATTACK_TOKEN")
      hosts = ["host:8001"]
      rule {
        methods = ["GET"]
        paths   = ["/repos/*"]
      }
    }
  }
}
`

// TestNetworkAttacks makes the attacks of TestAttacks in sdk/network/gate in sandboxes, and without one, where
// the same names and addresses answer. What came of it is the second table of docs/reference/attacks.md.
func TestNetworkAttacks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give this machine another internet; TestAttacks in sdk/network/gate is for ordinary users, too")
	}
	probe := filepath.Join(t.TempDir(), "attacks")
	build := exec.Command("go", "test", "-c", "-o", probe, "./sdk/network/gate")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the attacks: %v\n%s", err, out)
	}
	binary, err := os.ReadFile(probe)
	must(t, err)
	all := slices.DeleteFunc(places(t), func(p place) bool { return p.backend == "landlock" || p.name == "control user" })
	worlds := make([]*world, len(all))
	for i, p := range all {
		worlds[i] = newWorld(t, p)
		must(t, os.WriteFile(filepath.Join(worlds[i].project, "attacks"), binary, 0o755))
		must(t, os.WriteFile(filepath.Join(worlds[i].project, "attacks.hcl"), []byte(attackFile), 0o644))
	}
	done := make(chan struct{})
	var rows []string // of the page, but for what the places say
	outcomes := map[string][]string{}
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for i, p := range all {
			about, got, err := attackIn(t, worlds[i])
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
				return
			}
			rows, outcomes[p.name] = about, got
		}
	}()
	<-done
	if t.Failed() {
		return
	}
	var b strings.Builder
	b.WriteString("| case | attempt | outcome | bwrap root | bwrap user | podman root | podman user | control |\n")
	b.WriteString("|" + strings.Repeat(" --- |", 8) + "\n")
	for i, row := range rows {
		fmt.Fprintf(&b, "| GATE-%02d | %s", i+1, row)
		for _, p := range all {
			got := outcomes[p.name][i]
			switch {
			case p.backend == "" && slices.Contains([]string{"held", "permission denied"}, got):
				got = "–"
			case p.backend == "":
				got = "gets through"
			case got != "held":
				t.Errorf("%s: GATE-%02d, %s: %s", p.name, i+1, row, got)
			}
			fmt.Fprintf(&b, " | %s", got)
		}
		b.WriteString(" |\n")
	}
	if *update && !t.Failed() {
		replaceSection(t, "network", b.String())
		return
	}
	if d := gocmp.Diff(section(t, "network"), b.String()); d != "" {
		t.Errorf("docs/reference/attacks.md is out of date: go test ./test/security -run TestNetworkAttacks -update (-is +should be)\n%s", d)
	}
}

// attackIn makes all attacks at one place, in an internet that no other place has touched.
func attackIn(t *testing.T, w *world) (rows, outcomes []string, err error) {
	n := begin(t)
	cmd := exec.Command(filepath.Join(w.project, "attacks"))
	if w.backend != "" {
		cmd = exec.Command(e2e.Hutch(), "run", "-q", "--backend", w.backend, "attacks.hcl")
	}
	w.as(cmd)
	cmd.Env = append(cmd.Env, "ATTACK_TOKEN="+attackSecret)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("%w\n%s%s", err, &out, &errs)
	}
	for line := range strings.Lines(out.String()) {
		var about, want, got string
		if _, err := fmt.Sscanf(line, "%q %q %q", &about, &want, &got); err != nil {
			return nil, nil, fmt.Errorf("%w: %q", err, line)
		}
		rows, outcomes = append(rows, about+" | "+want), append(outcomes, got)
	}
	if len(rows) < 60 {
		return nil, nil, fmt.Errorf("only %d attempts\n%s", len(rows), &errs)
	}
	if w.backend == "" {
		return rows, outcomes, nil
	}
	n.open.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if heard := n.heard["8001"]; !bytes.HasPrefix(heard, []byte("GET /repos/good ")) || bytes.Count(heard, []byte(attackSecret)) != 1 || len(n.heard) != 1 {
		err = errors.New("the value went elsewhere than to GET /repos/good, once: ")
		for port, data := range n.heard {
			err = fmt.Errorf("%w\nport %s: %.2000q", err, port, data)
		}
	}
	return rows, outcomes, err
}
