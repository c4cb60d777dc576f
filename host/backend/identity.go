package backend

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/atomicfile"
)

// knownFormat is raised when known or sdk.Facts get fields that matter: what an
// older hutch remembered is then looked up again.
const knownFormat = 1

// binary is a backend's program, held open: what was hashed is what is executed.
type binary struct {
	file   *os.File
	path   string
	script bool // begins with #!, so that the kernel opens it once more by its path
	sha256 string
	facts  *sdk.Facts // from an earlier start of the same bytes; nil when unknown
	known  known
	cache  string // file to remember it in; "" for none
}

// known is what is remembered of a binary. A file with the same device, inode,
// size and times is taken for the same bytes: the change time cannot be set
// back without being root or the clock, so this weakens the check against those two only.
type known struct {
	Format int        `json:"format"`
	Dev    uint64     `json:"dev"`
	Ino    uint64     `json:"ino"`
	Size   int64      `json:"size"`
	Mtime  int64      `json:"mtime_ns"`
	Ctime  int64      `json:"ctime_ns"`
	SHA256 string     `json:"sha256"`
	Facts  *sdk.Facts `json:"facts,omitempty"`
}

// same reports whether k and o are the same file, unchanged.
func (k known) same(o known) bool {
	k.SHA256, k.Facts, o.SHA256, o.Facts = "", nil, "", nil
	return k == o
}

// openBinary opens the binary at path and finds out what is known about it.
// cacheDir may be empty.
func openBinary(name, path, cacheDir string) (*binary, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	b := &binary{path: path}
	// Above the descriptors that a child gets, which would replace it before exec, and below 64: the kernel may wait
	// some 10 ms to make the table of a process with threads larger than that.
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 56)
	unix.Close(fd)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	b.file = os.NewFile(uintptr(high), path)
	if err := b.identify(high, name, cacheDir); err != nil {
		b.file.Close()
		return nil, err
	}
	return b, nil
}

func (b *binary) identify(fd int, name, cacheDir string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s is not a regular file", b.path)
	}
	var magic [2]byte
	n, _ := unix.Pread(fd, magic[:], 0)
	b.script = n == 2 && string(magic[:]) == "#!"
	b.known = known{Format: knownFormat, Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, Mtime: timeOf(&st, false),
		Ctime: timeOf(&st, true)}
	if cacheDir != "" {
		// One file may be a backend under several names.
		name += "-" + strconv.FormatUint(b.known.Dev, 36) + "-" + strconv.FormatUint(b.known.Ino, 36) + ".json"
		b.cache = filepath.Join(cacheDir, name)
		if k, ok := recall(b.cache); ok && k.same(b.known) {
			b.sha256, b.facts = k.SHA256, k.Facts
			return nil
		}
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(b.file, 0, st.Size)); err != nil {
		return fmt.Errorf("hashing %s: %w", b.path, err)
	}
	b.sha256 = hex.EncodeToString(h.Sum(nil))
	return nil
}

// timeOf returns the change time or the modification time in nanoseconds.
func timeOf(st *unix.Stat_t, change bool) int64 {
	if change {
		return st.Ctim.Nano()
	}
	return st.Mtim.Nano()
}

// recall reads what was remembered; whatever is wrong with it means nothing was.
func recall(path string) (known, bool) {
	var k known
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &k) != nil || len(k.SHA256) != 2*sha256.Size {
		return known{}, false
	}
	return k, true
}

// remember keeps the hash and the facts for the next start. It is a cache: that it
// cannot be written is no error.
func (b *binary) remember(facts *sdk.Facts) {
	if b.cache == "" {
		return
	}
	k := b.known
	k.SHA256, k.Facts = b.sha256, facts
	var buf bytes.Buffer
	if json.NewEncoder(&buf).Encode(k) == nil {
		writeCache(b.cache, buf.Bytes())
	}
}

// writeCache puts a file into the cache, at once or not at all.
func writeCache(path string, content []byte) {
	if os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		_ = atomicfile.Write(path, content, 0o600, false)
	}
}
