//go:build linux

package notify

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FuzzPath reads a path from memory that ends where it does: up to its end and not beyond.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"", "/tmp/x", "a\x00b", string(bytes.Repeat([]byte("x"), unix.PathMax)), string(bytes.Repeat([]byte("y"), unix.PathMax-1))} {
		f.Add([]byte(s))
	}
	page := os.Getpagesize()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= 3*page {
			return
		}
		mem, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(mem)
		if err := unix.Mprotect(mem[3*page:], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		at := mem[3*page-len(data)-1 : 3*page] // data and a zero, then nothing
		copy(at, data)
		got, err := (&Request{PID: uint32(os.Getpid())}).Path(uint64(uintptr(unsafe.Pointer(&at[0]))))
		runtime.KeepAlive(mem)
		want, _, _ := bytes.Cut(data, []byte{0})
		switch {
		case len(want) >= unix.PathMax:
			if err == nil && len(got) >= 2*unix.PathMax {
				t.Errorf("%d bytes are read", len(got))
			}
		case err != nil || got != string(want):
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	})
}
