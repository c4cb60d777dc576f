package store

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// inMountNamespace makes cmd start in its own mount namespace, and where that needs it in a user namespace.
func inMountNamespace(cmd *exec.Cmd) error {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	return nil
}

func mountTmpfs(dir string, size int) (unmount func(), err error) {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	err = syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size))
	return func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }, err
}
