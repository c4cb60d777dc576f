//go:build linux

// Package recorder notes which files of the host a command names, for hutch observe. A filter leaves the calls that
// open, execute or look at a file to this process, which reads the path and lets every call go on: it records and
// decides nothing.
package recorder

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/seccomp/notify"
)

// call says where a system call has what it names.
type call struct {
	dir   int  // argument with the directory; -1: none. The path is the next one
	flags int  // argument with the flags of open; -1: none
	write bool // it makes something
}

var calls = map[uint32]call{
	unix.SYS_OPENAT: {flags: 2}, unix.SYS_OPENAT2: {flags: -1}, unix.SYS_EXECVEAT: {flags: -1},
	unix.SYS_NEWFSTATAT: {flags: -1}, unix.SYS_STATX: {flags: -1}, unix.SYS_FACCESSAT: {flags: -1},
	unix.SYS_FACCESSAT2: {flags: -1}, unix.SYS_CHDIR: {dir: -1, flags: -1}, unix.SYS_MKDIRAT: {flags: -1, write: true},
}

// Filter is the filter whose listener Start takes, as an array of struct sock_filter.
func Filter() []byte {
	// The number alone: the sandbox's own filter kills who makes calls of another architecture.
	prog := []bpf.Instruction{bpf.LoadAbsolute{Size: 4}}
	for nr := range calls {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1},
			bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF})
	}
	raw, err := bpf.Assemble(append(prog, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		panic(err) // the numbers are constants
	}
	var out []byte
	for _, i := range raw {
		out = binary.LittleEndian.AppendUint32(append(binary.LittleEndian.AppendUint16(out, i.Op), i.Jt, i.Jf), i.K)
	}
	return out
}

// Recorder notes what one command names.
type Recorder struct {
	init   string   // the record begins when this program is executed
	mounts []string // what the sandbox has of the host that not every sandbox has
	hidden func(path string) bool
	done   chan struct{}

	root *os.File // of the command; nil until it runs
	host *os.File // of this process
	seen map[sdk.FileUse]bool
	uses map[string]sdk.FileUse
}

// mostSeen bounds the paths that are looked at; a command can invent any number.
const mostSeen = 100_000

// Start notes what is named by a process that sends its filter's listener over the returned socket, see [notify.Send],
// from when it executes init on. The caller closes the socket once that process has it. Of what the sandbox has, only
// mounts and what is below them count; of what only the host has, not what hidden says can never be shown.
func Start(init string, mounts []string, hidden func(path string) bool) (*Recorder, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	near, far := os.NewFile(uintptr(pair[0]), "observer"), os.NewFile(uintptr(pair[1]), "observer")
	defer near.Close()
	file, err := net.FileConn(near)
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	conn := file.(*net.UnixConn)
	r := &Recorder{
		init: init, mounts: mounts, hidden: hidden, done: make(chan struct{}),
		seen: map[sdk.FileUse]bool{}, uses: map[string]sdk.FileUse{},
	}
	go func() {
		defer close(r.done)
		defer conn.Close()
		if r.host, _ = os.OpenFile("/", unix.O_PATH, 0); r.host == nil {
			return
		}
		defer r.host.Close()
		defer func() {
			if r.root != nil {
				r.root.Close()
			}
		}()
		oob := make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
		if err != nil {
			return
		}
		listener, err := notify.Receive(oob[:n])
		if err != nil {
			return
		}
		defer listener.Close()
		notify.Serve(listener, func(q *notify.Request) notify.Response {
			r.note(listener, q)
			return notify.Response{Flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		})
	}()
	return r, far, nil
}

// End returns the record, sorted by path, once all processes of the command are gone. A nil Recorder has none.
func (r *Recorder) End() (out []sdk.FileUse) {
	if r == nil {
		return nil
	}
	<-r.done
	for _, u := range r.uses {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b sdk.FileUse) int { return cmp.Compare(a.Path, b.Path) })
	return out[:min(len(out), sdk.MaxFiles)]
}

func (r *Recorder) note(listener *os.File, q *notify.Request) {
	c, ok := calls[uint32(q.Nr)]
	if !ok {
		return
	}
	name, err := q.Path(q.Args[c.dir+1])
	if err != nil || name == "" || !q.Waits(listener) {
		return
	}
	if r.root == nil {
		if name == r.init {
			r.root, _ = os.OpenFile(fmt.Sprintf("/proc/%d/root", q.PID), unix.O_PATH, 0)
		}
		return
	}
	const writes = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC
	write := c.write || c.flags >= 0 && q.Args[c.flags]&writes != 0
	if q.Nr == unix.SYS_OPENAT2 { // whose flags begin the struct that its third argument points to
		how := make([]byte, 8)
		write = q.Read(q.Args[2], how) == nil && binary.NativeEndian.Uint64(how)&writes != 0
	}
	if !path.IsAbs(name) {
		from := fmt.Sprintf("/proc/%d/cwd", q.PID)
		if c.dir >= 0 && int32(q.Args[c.dir]) != unix.AT_FDCWD {
			from = fmt.Sprintf("/proc/%d/fd/%d", q.PID, int32(q.Args[c.dir]))
		}
		dir, err := os.Readlink(from)
		if err != nil {
			return
		}
		name = path.Join(dir, name)
	}
	r.add(path.Clean(name), write)
}

func (r *Recorder) add(name string, write bool) {
	asked := sdk.FileUse{Path: name, Write: write}
	if r.seen[asked] || len(r.seen) >= mostSeen {
		return
	}
	r.seen[asked] = true
	u := sdk.FileUse{Path: find(r.root, name, write), Found: true, Write: write}
	if u.Path != "" {
		below := func(m string) bool { return u.Path == m || strings.HasPrefix(u.Path, m+"/") }
		if !slices.ContainsFunc(r.mounts, below) {
			return // every sandbox has it
		}
	} else if u.Path, u.Found = find(r.host, name, write), false; u.Path == "" || r.hidden(u.Path) {
		return
	}
	if was, ok := r.uses[u.Path]; ok {
		u.Write = u.Write || was.Write
	}
	r.uses[u.Path] = u
}

// find returns the path without symbolic links of what name is below root, "" for nothing. What is to be made lies in a
// directory that is there.
func find(root *os.File, name string, create bool) string {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(root.Fd()), name, &how)
	if err != nil {
		if dir, last := path.Split(name); create && last != "" {
			if at := find(root, path.Clean(dir), false); at != "" {
				return path.Join(at, last)
			}
		}
		return ""
	}
	defer unix.Close(fd)
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return ""
	}
	return at
}
