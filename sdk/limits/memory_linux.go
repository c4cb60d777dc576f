package limits

import "golang.org/x/sys/unix"

// MemoryAndSwap returns how many bytes this machine has of both together, 0 if that is not known.
func MemoryAndSwap() int64 {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return 0
	}
	return int64((uint64(si.Totalram) + uint64(si.Totalswap)) * uint64(max(si.Unit, 1)))
}
