//go:build linux

package gate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// names gives each name that resolves its own address. Its methods may be called concurrently. With a file, all
// gates of that file give a name the same address: the n-th line of the file has the n-th address.
type names struct {
	mu   sync.Mutex
	addr map[string]netip.Addr
	name map[netip.Addr]string
	file *os.File // nil: no other gate serves these names
	read int64    // bytes of the file that are known
}

// The addresses are those of 198.18.0.0/15 from 198.18.1.0 on: what is below belongs to the loopback.
const (
	firstAddress = 198<<24 | 18<<16 | 1<<8
	mostNames    = 1<<17 - 1<<8
)

func (n *names) open(path string) (err error) {
	n.addr, n.name = map[string]netip.Addr{}, map[netip.Addr]string{}
	if path != "" {
		n.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	return err
}

func (n *names) close() {
	if n.file != nil {
		n.file.Close()
	}
}

// give returns the address of a name; false when no address is left.
func (n *names) give(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.addr[name]; ok {
		return a, true
	}
	if n.file == nil {
		return n.add(name)
	}
	if unix.Flock(int(n.file.Fd()), unix.LOCK_EX) != nil {
		return netip.Addr{}, false
	}
	defer func() { _ = unix.Flock(int(n.file.Fd()), unix.LOCK_UN) }()
	if n.refresh() != nil {
		return netip.Addr{}, false
	}
	if a, ok := n.addr[name]; ok {
		return a, true
	}
	if _, err := n.file.WriteAt([]byte(name+"\n"), n.read); err != nil {
		return netip.Addr{}, false
	}
	n.read += int64(len(name)) + 1
	return n.add(name)
}

func (n *names) add(name string) (netip.Addr, bool) {
	if len(n.addr) == mostNames {
		return netip.Addr{}, false
	}
	a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, firstAddress+uint32(len(n.addr)))))
	n.addr[name], n.name[a] = a, name
	return a, true
}

// refresh learns what other gates have written. Half a line, of a process that was killed, will be written over.
func (n *names) refresh() error {
	r := bufio.NewReader(io.NewSectionReader(n.file, n.read, 1<<40))
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, ok := n.add(line[:len(line)-1]); !ok {
			return fmt.Errorf("%s has more than %d names", n.file.Name(), mostNames)
		}
		n.read += int64(len(line))
	}
}

// of returns the name that an address was given to.
func (n *names) of(a netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := n.name[a]
	if !ok && n.file != nil {
		_ = n.refresh() // without the lock: a whole line never changes
		name, ok = n.name[a]
	}
	return name, ok
}
