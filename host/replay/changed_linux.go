package replay

import (
	"io/fs"
	"syscall"
	"time"
)

// changed is when a file, or what is said about it, was last changed.
func changed(fi fs.FileInfo) time.Time {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return time.Unix(int64(st.Ctim.Sec), int64(st.Ctim.Nsec))
	}
	return fi.ModTime()
}
