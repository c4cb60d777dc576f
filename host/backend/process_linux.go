package backend

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// waitExited waits until a child has ended, without reaping it.
func waitExited(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
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
