package arbiter

import "golang.org/x/sys/unix"

const sysChmod = unix.SYS_CHMOD
