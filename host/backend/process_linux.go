package backend

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// waitExited waits until a child has ended, without reaping it.
func waitExited(pid int) bool {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	return true
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
		return fmt.Errorf("the socket belongs to process %d, which is none of the backend", cred.Pid)
	}
	return nil
}
