package overlay

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Snapshot is what a directory looked like at one time: an entry for every path, and no contents. A path whose entry
// still looks the same was not touched since. It is safe for concurrent reading.
type Snapshot struct {
	Taken time.Time
	// Complete says that every path of the directory is in it.
	Complete bool
	Entries  []Entry // by path, byte by byte

	contents bool
	gaps     gaps            // what kept it from being complete
	closed   map[string]bool // directories that could not be read
}

func (s *Snapshot) sort() {
	slices.SortFunc(s.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
}

// Lookup finds the entry of a path.
func (s *Snapshot) Lookup(path string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(s.Entries, path, func(e Entry,
		path string) int {
		return strings.Compare(e.Path, path)
	})
	if !ok {
		return Entry{}, false
	}
	return s.Entries[i], true
}

// With is the snapshot with other entries at some paths, the zero Entry for nothing.
func (s *Snapshot) With(fresh map[string]Entry) *Snapshot {
	out := &Snapshot{Taken: s.Taken, Complete: s.Complete, contents: s.contents}
	for _, e := range s.Entries {
		if _, ok := fresh[e.Path]; !ok {
			out.Entries = append(out.Entries, e)
		}
	}
	for _, e := range fresh {
		if e.Path != "" {
			out.Entries = append(out.Entries, e)
		}
	}
	out.sort()
	return out
}

// snapshotFile is a snapshot on disk: columns, which gob reads and writes without a look at the type of every entry.
// Times and inodes are the difference to the entry before, which is mostly small. A checksum follows it.
type snapshotFile struct {
	Format             int
	Taken              int64 // nanoseconds since 1970
	Complete, Contents bool
	Paths              string // each with a zero byte after it
	Modes              []uint32
	Sizes              []int64
	Mtimes, Ctimes     []int64
	Inodes             []int64
	Rdevs              map[int]uint64 // by the number of the entry
	Links              map[int]string
	// Names of contents have NameSize bytes each; one of zero bytes is not known.
	NameSize int
	Names    string
}

const (
	snapshotFormat   = 3
	maxSnapshotBytes = 512 << 20 // which is more than a million entries take
	maxSnapshotPath  = 4096      // bytes of a path, and of a symbolic link's target
	maxSnapshotName  = 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Save writes the snapshot for [Load]. Of what kept it from being complete only Complete is kept.
func (s *Snapshot) Save(w io.Writer) error {
	n := len(s.Entries)
	f := snapshotFile{
		Format: snapshotFormat, Taken: s.Taken.UnixNano(), Complete: s.Complete, Contents: s.contents,
		Modes: make([]uint32, n),
		Sizes: make([]int64, n), Mtimes: make([]int64, n), Ctimes: make([]int64, n), Inodes: make([]int64, n),
		Rdevs: map[int]uint64{}, Links: map[int]string{},
	}
	for _, e := range s.Entries {
		f.NameSize = max(f.NameSize, len(e.Content))
	}
	var paths, names strings.Builder
	none := strings.Repeat("\x00", f.NameSize)
	var before Entry
	for i, e := range s.Entries {
		paths.WriteString(e.Path + "\x00")
		names.WriteString(e.Content + none[len(e.Content):])
		f.Modes[i], f.Sizes[i], f.Inodes[i] = uint32(e.Mode), e.Size, int64(e.Ino-before.Ino)
		f.Mtimes[i], f.Ctimes[i] = e.Mtime-before.Mtime, e.Ctime-before.Ctime
		if e.Rdev != 0 {
			f.Rdevs[i] = e.Rdev
		}
		if e.Mode.Type() == fs.ModeSymlink {
			f.Links[i] = e.Link
		}
		before = e
	}
	f.Paths, f.Names = paths.String(), names.String()
	sum := crc32.New(castagnoli)
	err := gob.NewEncoder(io.MultiWriter(w, sum)).Encode(f)
	if err == nil {
		_, err = w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	}
	if err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	return nil
}

// Load reads what [Snapshot.Save] wrote.
func Load(r io.Reader) (*Snapshot, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSnapshotBytes+1))
	if err == nil {
		var s *Snapshot
		if s, err = decodeSnapshot(data); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("load a snapshot: %w", err)
}

func decodeSnapshot(data []byte) (*Snapshot, error) {
	body := data[:max(len(data)-crc32.Size, 0)]
	switch {
	case len(data) > maxSnapshotBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxSnapshotBytes)
	case len(body) == 0 || binary.LittleEndian.Uint32(data[len(body):]) != crc32.Checksum(body, castagnoli):
		return nil, errors.New("its checksum does not match: it is cut or damaged")
	}
	var f snapshotFile
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(&f); err != nil {
		return nil, err
	}
	if f.Format != snapshotFormat {
		return nil, fmt.Errorf("its format is %d, this program knows %d", f.Format, snapshotFormat)
	}
	n := len(f.Modes)
	paths := strings.Split(f.Paths, "\x00")
	for _, m := range []int{len(f.Sizes), len(f.Mtimes), len(f.Ctimes), len(f.Inodes), len(paths) - 1} {
		if m != n || n > DefaultMaxEntries {
			return nil, fmt.Errorf("it has %d entries and %d values for them", n, m)
		}
	}
	if f.NameSize < 0 || f.NameSize > maxSnapshotName || len(f.Names) != n*f.NameSize {
		return nil, fmt.Errorf("it has %d bytes for the names of the contents of %d entries", len(f.Names), n)
	}
	s := &Snapshot{Taken: time.Unix(0, f.Taken), Complete: f.Complete, Entries: make([]Entry, n), contents: f.Contents}
	var before Entry
	for i := range s.Entries {
		e := Entry{Path: paths[i], Stat: safefile.Stat{
			Mode: fs.FileMode(f.Modes[i]), Size: f.Sizes[i], Mtime: before.Mtime + f.Mtimes[i],
			Ctime: before.Ctime + f.Ctimes[i],
			Ino:   before.Ino + uint64(f.Inodes[i]), Rdev: f.Rdevs[i], Link: f.Links[i],
		}}
		if name := f.Names[i*f.NameSize : (i+1)*f.NameSize]; e.Mode.IsRegular() && strings.Trim(name, "\x00") != "" {
			e.Content = name
		}
		if len(e.Path) > maxSnapshotPath || len(e.Link) > maxSnapshotPath || !safefile.Local(e.Path) {
			return nil, fmt.Errorf("%.200q is not a path below a directory", e.Path)
		}
		if e.Link != "" && e.Mode.Type() != fs.ModeSymlink {
			return nil, fmt.Errorf("%q has a link's target and is not a link", e.Path)
		}
		if e.Path <= before.Path {
			return nil, fmt.Errorf("the entry %q is out of order", e.Path)
		}
		s.Entries[i], before = e, e
	}
	return s, nil
}
