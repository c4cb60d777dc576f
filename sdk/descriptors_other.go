//go:build !linux

package sdk

import (
	"os"
	"strconv"
	"syscall"
)

// keepDescriptors marks every descriptor that this process inherited as not to be passed on.
func keepDescriptors() {
	entries, _ := os.ReadDir("/dev/fd")
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 3 {
			syscall.CloseOnExec(n)
		}
	}
}
