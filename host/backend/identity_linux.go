package backend

import "golang.org/x/sys/unix"

// timeOf returns the change time or the modification time in nanoseconds.
func timeOf(st *unix.Stat_t, change bool) int64 {
	if change {
		return st.Ctim.Nano()
	}
	return st.Mtim.Nano()
}
