package backend

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// waitExited waits until a child has ended, without reaping it.
func waitExited(pid int) bool {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	return true
}

// killStrays kills what a process that failed to start left outside of its group, as a daemon with a session of its
// own: whatever has its private directory in its environment. Of a backend that works such processes may be kept
// sandboxes.
func (p *process) killStrays() {
	if p.dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	mark := []byte("=" + p.dir + "\x00")
	_, _ = descendants.Kill(ctx, func() (pids []int) {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			if env, err := os.ReadFile("/proc/" + e.Name() + "/environ"); err == nil && bytes.Contains(env, mark) &&
				procstat.Alive(pid) {
				pids = append(pids, pid)
			}
		}
		return pids
	})
}

// execPath is the path to execute, by which the file is the one that was hashed,
// and whether it must be passed on as scriptFD: an interpreter opens its script once
// more, when the descriptors that close on exec are gone.
func execPath(b *binary) (path string, passed bool) {
	if b.script {
		return "/proc/self/fd/" + strconv.Itoa(scriptFD), true
	}
	return "/proc/self/fd/" + strconv.Itoa(int(b.file.Fd())), false
}

// checkPeer makes sure that the process at the other end of a socket is the plugin,
// or one that it started, and runs as us.
func checkPeer(conn net.Conn, pgid int) error {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("not a unix socket")
	}
	rc, err := uc.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	cerr := rc.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if cerr != nil {
		return cerr
	}
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the socket belongs to user %d", cred.Uid)
	}
	if int(cred.Pid) == pgid {
		return nil
	}
	if group, err := unix.Getpgid(int(cred.Pid)); err != nil || group != pgid {
		return fmt.Errorf("the socket belongs to process %d, which does not belong to the backend", cred.Pid)
	}
	return nil
}
