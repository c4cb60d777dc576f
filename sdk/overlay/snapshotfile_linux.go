package overlay

import (
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// kept is one entry of a snapshot on disk.
type kept struct {
	Path         string
	Mode         fs.FileMode
	Size         int64
	Mtime, Ctime unix.Timespec
	Ino, Rdev    uint64
	Link         string
	Hash         [sha256.Size]byte
}

// keptHead comes first: how many entries follow.
type keptHead struct {
	Format   int
	Entries  int
	Contents bool
}

const snapshotFormat = 1

// Save writes the snapshot so that [Load] finds it again in another process. One that is not complete cannot be saved.
func (s *Snapshot) Save(w io.Writer) error {
	if err := s.gaps.err(); err != nil {
		return fmt.Errorf("save a snapshot: it is not complete: %w", err)
	}
	out := gob.NewEncoder(w)
	if err := out.Encode(keptHead{Format: snapshotFormat, Entries: len(s.entries), Contents: s.contents}); err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	for path, e := range s.entries {
		if err := out.Encode(kept{path, e.mode, e.size, e.mtime, e.ctime, e.ino, e.rdev, e.link, e.hash}); err != nil {
			return fmt.Errorf("save a snapshot: %w", err)
		}
	}
	return nil
}

// Load reads what [Snapshot.Save] wrote. It trusts the file.
func Load(r io.Reader) (*Snapshot, error) {
	in := gob.NewDecoder(r)
	var head keptHead
	if err := in.Decode(&head); err != nil {
		return nil, fmt.Errorf("load a snapshot: %w", err)
	}
	if head.Format != snapshotFormat {
		return nil, fmt.Errorf("load a snapshot: its format is %d, this program knows %d", head.Format, snapshotFormat)
	}
	if head.Entries < 0 {
		return nil, fmt.Errorf("load a snapshot: it has %d entries", head.Entries)
	}
	s := &Snapshot{entries: make(map[string]seen), contents: head.Contents}
	for range head.Entries {
		var k kept
		if err := in.Decode(&k); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("load a snapshot: %w", err)
		}
		s.entries[k.Path] = seen{k.Mode, k.Size, k.Mtime, k.Ctime, k.Ino, k.Rdev, k.Link, k.Hash}
	}
	return s, nil
}
