package limits

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// BytesPerFile relates the two bounds of a disk limit: it allows one file or directory for every so many bytes.
const BytesPerFile = 4 << 10

// FilesOf is how many files and directories a disk limit of so many bytes allows.
func FilesOf(disk uint64) uint64 { return max(disk/BytesPerFile, 64) }

// Space is the layer of an overlay on disk, with its work directory at "work", that a [Sampler] holds to a size and a
// number of files. It is walked only when the free space of its file system has shrunk by so much that the limit may
// have been reached, and now and then besides.
type Space struct {
	Dir   *os.File
	Bytes uint64 // with what is on the Sampler's memory file systems; the number of files is [FilesOf] it
	Made  Usage  // what lay there before the first command, such as a copy of a project, and does not count

	// Eager walks often, which finds what is written while others free as much on the same file system.
	Eager bool

	walked       time.Time
	cost         time.Duration
	bytes, files uint64                       // at that time
	free         unix.Statfs_t                // likewise
	first        struct{ bytes, free uint64 } // at the first time
}

// Usage is what a tree takes on disk.
type Usage struct{ Bytes, Files uint64 }

// UsageOf adds up what is in a directory.
func UsageOf(dir *os.File) Usage {
	w := walker{links: map[[2]uint64]bool{}}
	_ = w.walk(int(dir.Fd()), 0) // what lies too deep is reported when a command is sampled
	return Usage{w.bytes, w.files}
}

// rewalk is after which time a space is walked although the free space gives no reason: others may have freed as much
// as the sandbox has written.
const rewalk = 5 * time.Second

// maxDepth bounds, in levels, how deep directories may be nested. Each level takes one descriptor.
const maxDepth = 512

var errDeep = errors.New("too deep")

// exceeded reports an overrun, nil for none, and how many bytes are left. What lies in memory comes on top.
func (s *Space) exceeded(inMemory, filesInMemory uint64, spaces []*namespace, tmpfs map[string]bool) (over *Overrun,
	room uint64) {
	var now unix.Statfs_t
	if unix.Fstatfs(int(s.Dir.Fd()), &now) != nil {
		return nil, s.Bytes
	}
	left := func(bytes, files uint64) uint64 {
		return min(s.Bytes-min(bytes, s.Bytes), (FilesOf(s.Bytes)-min(files, FilesOf(s.Bytes)))*BytesPerFile)
	}
	lessBytes := (s.free.Bfree - min(now.Bfree, s.free.Bfree)) * uint64(now.Bsize)
	lessFiles := s.free.Ffree - min(now.Ffree, s.free.Ffree)
	allowed := FilesOf(s.Bytes)
	again := max(rewalk, 50*s.cost)
	if s.Eager {
		again = max(5*MinInterval, costShare*s.cost)
	}
	if !s.walked.IsZero() && s.bytes+inMemory+lessBytes <= s.Bytes && s.files+filesInMemory+lessFiles <= allowed &&
		time.Since(s.walked) < again {
		return nil, left(s.bytes+inMemory+lessBytes, s.files+filesInMemory+lessFiles)
	}
	began := time.Now()
	w := walker{links: map[[2]uint64]bool{}}
	err := w.walk(int(s.Dir.Fd()), 0)
	held := openFiles(spaces, tmpfs)
	s.bytes, s.files = w.bytes+held.disk, w.files+held.files
	s.bytes, s.files = s.bytes-min(s.bytes, s.Made.Bytes), s.files-min(s.files, s.Made.Files)
	free := now.Bfree * uint64(now.Bsize)
	if s.walked.IsZero() {
		s.first.bytes, s.first.free = s.bytes, free
	}
	s.free, s.walked, s.cost = now, began, time.Since(began)
	over = &Overrun{Limit: Disk, Asked: s.Bytes, Unit: "bytes"}
	if hiding := held.inFlight + w.closed; hiding > 0 {
		if unseen := s.first.free - min(free+s.bytes-min(s.first.bytes, s.bytes), s.first.free); unseen > 0 {
			s.bytes += unseen
			over.Note = fmt.Sprintf("%d directories or descriptors hide what they hold, and the file system has lost %d "+
				"bytes that are not seen", hiding, unseen)
		}
	}
	over.Used = s.bytes + inMemory
	switch {
	case errors.Is(err, errDeep):
		over.Asked, over.Used, over.Unit = maxDepth, maxDepth+1, "levels of directories"
	case over.Used > over.Asked:
	case s.files+filesInMemory > allowed:
		over.Asked, over.Used, over.Unit = allowed, s.files+filesInMemory, "files"
	default:
		return nil, left(over.Used, s.files+filesInMemory)
	}
	return over, 0
}

// walker adds up what a tree takes. A writer may change the tree meanwhile.
type walker struct {
	bytes, files uint64
	links        map[[2]uint64]bool // files with more than one name that were counted
	closed       int                // directories that cannot be read
}

func (w *walker) walk(fd, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	// A description of its own, because dir's position is everybody's.
	own, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(own), ".")
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if depth == 0 && name == "work" {
				continue // of the overlay, which closes it to everybody
			}
			var st unix.Stat_t
			if unix.Fstatat(own, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				id := [2]uint64{st.Dev, st.Ino}
				if w.links[id] {
					continue
				}
				w.links[id] = true
			}
			w.files++
			w.bytes += uint64(st.Blocks) * 512
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			child, err := unix.Openat(own, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				w.closed++
				continue
			}
			err = w.walk(child, depth+1)
			unix.Close(child)
			if errors.Is(err, errDeep) {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}
