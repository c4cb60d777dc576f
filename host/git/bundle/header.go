package bundle

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Header is what stands before the pack.
type Header struct {
	Version       int      // 2 or 3
	Format        string   // of object names: "sha1" or "sha256"
	Prerequisites []string // commits that the receiver must have
	Refs          []Ref
}

// Ref is one thing that a bundle offers. The name is whatever the bundle says: it is compared and never used.
type Ref struct{ Object, Name string }

// What a header may have. Git itself writes one line for each branch and tag.
const (
	maxHeaderLine = 4096
	maxHeaderRefs = 10_000
)

// hexLen is the length of an object name.
func hexLen(format string) int {
	if format == "sha256" {
		return 64
	}
	return 40
}

// errNoBundle says that the bytes are none at all.
var errNoBundle = errors.New("it is no git bundle")

// ReadHeader reads up to the first byte of the pack. It returns how many bytes that were.
func ReadHeader(r *bufio.Reader) (*Header, int64, error) {
	var read int64
	line := func() (string, error) {
		s, err := r.ReadSlice('\n')
		read += int64(len(s))
		switch {
		case errors.Is(err, bufio.ErrBufferFull), len(s) > maxHeaderLine:
			return "", fmt.Errorf("a line of its header is longer than %d bytes", maxHeaderLine)
		case errors.Is(err, io.EOF):
			return "", errors.New("it ends within its header")
		case err != nil:
			return "", err
		}
		return string(s[:len(s)-1]), nil
	}
	first, err := r.Peek(16)
	if err != nil || !strings.HasPrefix(string(first), "# v") {
		return nil, 0, errNoBundle
	}
	h := &Header{Format: "sha1"}
	switch s, err := line(); {
	case err != nil:
		return nil, read, err
	case s == "# v2 git bundle":
		h.Version = 2
	case s == "# v3 git bundle":
		h.Version = 3
	default:
		return nil, read, errNoBundle
	}
	for {
		s, err := line()
		if err != nil {
			return nil, read, err
		}
		if s == "" {
			return h, read, nil
		}
		if err := h.take(s); err != nil {
			return nil, read, err
		}
	}
}

// take takes one line in.
func (h *Header) take(s string) error {
	if rest, ok := strings.CutPrefix(s, "@"); ok && h.Version == 3 {
		if len(h.Refs) > 0 || len(h.Prerequisites) > 0 {
			return errors.New("a capability stands behind a ref")
		}
		switch rest {
		case "object-format=sha1", "object-format=sha256":
			h.Format = strings.TrimPrefix(rest, "object-format=")
			return nil
		}
		return fmt.Errorf("it asks for %q, which hutch does not take", rest)
	}
	before, isBefore := strings.CutPrefix(s, "-")
	n := hexLen(h.Format)
	if isBefore {
		s = before
	}
	if len(s) < n || !isHex(s[:n]) || len(s) > n && s[n] != ' ' {
		return errors.New("a line of its header names no object")
	}
	if len(h.Refs)+len(h.Prerequisites) >= maxHeaderRefs {
		return fmt.Errorf("its header has more than %d lines", maxHeaderRefs)
	}
	if isBefore {
		if len(h.Refs) > 0 {
			return errors.New("a prerequisite stands behind a ref")
		}
		h.Prerequisites = append(h.Prerequisites, s[:n])
		return nil
	}
	if len(s) < n+2 {
		return errors.New("a ref of its header has no name")
	}
	h.Refs = append(h.Refs, Ref{Object: s[:n], Name: s[n+1:]})
	return nil
}

// Find returns the object of the first of the names that the bundle has.
func (h *Header) Find(names ...string) (string, bool) {
	for _, name := range names {
		for _, r := range h.Refs {
			if r.Name == name {
				return r.Object, true
			}
		}
	}
	return "", false
}

// String is the header as git writes it.
func (h *Header) String() string {
	var b strings.Builder
	if h.Format == "sha256" {
		b.WriteString("# v3 git bundle\n@object-format=sha256\n")
	} else {
		b.WriteString("# v2 git bundle\n")
	}
	for _, p := range h.Prerequisites {
		fmt.Fprintf(&b, "-%s\n", p)
	}
	for _, r := range h.Refs {
		fmt.Fprintf(&b, "%s %s\n", r.Object, r.Name)
	}
	return b.String() + "\n"
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
