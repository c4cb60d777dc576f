package safepath

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Set collects the paths of one tree and refuses the one that cannot stand beside those before it, also on a file
// system that folds case or normalises Unicode. The zero value is ready and uses the default rules. Memory grows
// with the number of distinct paths and their directories; the caller bounds that number. Not safe for concurrent use.
type Set struct {
	Rules Rules
	seen  map[string]entry
}

type entry struct {
	path    string // as first spelled
	dir     bool
	implied bool // a directory that only the path of something in it named
}

// AddFile checks p and takes it in as a file: anything that is not a directory, symbolic links included. A path that
// is already there is a Duplicate. The error is an *Error whose Other is the earlier path.
func (s *Set) AddFile(p string) error { return s.add(p, false) }

// AddDir checks p and takes it in as a directory. Naming the same directory again in the same spelling is no error
// after a file in it implied it, and is a Duplicate after an earlier AddDir.
func (s *Set) AddDir(p string) error { return s.add(p, true) }

// Len is the number of paths held, directories implied by their files included.
func (s *Set) Len() int { return len(s.seen) }

func (s *Set) add(p string, dir bool) error {
	if err := s.Rules.Check(p); err != nil {
		return err
	}
	if s.seen == nil {
		s.seen = make(map[string]entry)
	}
	// Parents are looked at first and written only when the whole path is accepted, so that a refused path leaves
	// no trace that could refuse a later, good one.
	for end, c := range []byte(p) {
		if c != '/' {
			continue
		}
		if old, ok := s.seen[Fold(p[:end])]; ok {
			if err := compare(p, p[:end], true, old); err != nil {
				return err
			}
		}
	}
	key := Fold(p)
	if old, ok := s.seen[key]; ok {
		if err := compare(p, p, dir, old); err != nil {
			return err
		}
		if !old.implied {
			return &Error{Path: p, Kind: Duplicate, Other: old.path, Reason: "is named twice"}
		}
	}
	for end := len(p) - 1; end > 0; end-- {
		if p[end] != '/' {
			continue
		}
		k := Fold(p[:end])
		if _, ok := s.seen[k]; ok {
			break // its own parents are there too
		}
		s.seen[k] = entry{path: p[:end], dir: true, implied: true}
	}
	s.seen[key] = entry{path: p, dir: dir}
	return nil
}

// compare says what keeps part, which is p or one of its parents, from being the same thing as old.
func compare(p, part string, dir bool, old entry) error {
	if part != old.path {
		return &Error{Path: p, Kind: Collision, Other: old.path,
			Reason: fmt.Sprintf("%s is the same as %s where case or Unicode form does not count; rename one", quote(part),
				quote(old.path))}
	}
	if dir != old.dir {
		have, want := "a file", "a directory"
		if old.dir {
			have, want = want, have
		}
		return &Error{Path: p, Kind: Conflict, Other: old.path,
			Reason: fmt.Sprintf("needs %s as %s, and it is already %s", quote(part), want, have)}
	}
	return nil
}

// Fold maps all spellings of a path that some file system takes for the same file to one string: full case folding
// between two normalisations, without the characters that are ignored in comparisons. The result is a key, never a
// path to open.
func Fold(p string) string {
	ascii := true
	for i := 0; i < len(p); i++ {
		if p[i] >= 0x80 {
			ascii = false
			break
		}
	}
	if ascii {
		return strings.ToLower(p)
	}
	if !utf8.ValidString(p) {
		return p // such names are only ever equal byte for byte
	}
	p = strings.Map(func(c rune) rune {
		if unicode.Is(unicode.Cf, c) || unicode.Is(unicode.Variation_Selector, c) {
			return -1
		}
		switch { // x/text swaps the two cases of Cherokee letters
		case c >= 0xab70 && c <= 0xabbf:
			return c - 0xab70 + 0x13a0
		case c >= 0x13f8 && c <= 0x13fd:
			return c - 8
		}
		return c
	}, p)
	// NFD, fold, NFC: the canonical caseless match of Unicode 3.13, kept in composed form.
	return norm.NFC.String(cases.Fold().String(norm.NFD.String(p)))
}
