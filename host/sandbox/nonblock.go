package sandbox

import "syscall"

// nonblock opens what may be a FIFO without waiting for its other end.
const nonblock = syscall.O_NONBLOCK
