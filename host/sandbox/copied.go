package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/hutch-run/hutch/host/store"
)

// copied is what the chain of the sandbox says about a copy.
type copied struct {
	Way  string `json:"way"`           // in or out
	Path string `json:"path"`          // inside the sandbox
	Tar  bool   `json:"tar,omitempty"` // size and hash are of a tar stream: what was copied in is a tree
	sent
}

// sent is what went into the sandbox.
type sent struct {
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // hex
}

// summing counts and hashes what is written through it.
type summing struct {
	to  io.Writer
	n   int64
	sum hash.Hash
}

func newSum(to io.Writer) *summing { return &summing{to: to, sum: sha256.New()} }

// Write implements [io.Writer].
func (w *summing) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.n += int64(n)
	w.sum.Write(p[:n])
	return n, err
}

func (w *summing) sent() sent { return sent{w.n, hex.EncodeToString(w.sum.Sum(nil))} }

// copied notes a copy in the chain of the sandbox.
func (s *Sandbox) copied(err error, c copied) error {
	if err != nil {
		return about(s.Record, err)
	}
	if c.Way == "out" {
		return s.rec.Event(store.EventSandboxCopy, c)
	}
	return s.rec.Changed(store.EventSandboxCopy, c)
}
