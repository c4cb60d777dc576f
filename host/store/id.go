package store

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A run id is the UTC second at which it was made, and six digits of Crockford's base 32 (no i, l, o, u) that sort
// within the second: ten bits of the second's fraction, then twenty random bits. It sorts by time, is unique without
// asking anybody, can be read out, and its tail alone nearly always suffices to name a run.

const (
	idLayout   = "060102-150405"
	idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	tailDigits = 6
)

// isRunID says whether id has the form of a run id.
func isRunID(id string) bool {
	if len(id) != len(idLayout)+1+tailDigits || id[6] != '-' || id[len(idLayout)] != '-' {
		return false
	}
	return madeOf(id[:6], digits) && madeOf(id[7:len(idLayout)], digits) && madeOf(id[len(idLayout)+1:], idAlphabet)
}

// Names are checked by hand: compiling the expressions for them took a third of a millisecond of every start.

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyz"
)

// madeOf says whether s consists of nothing but the bytes in set.
func madeOf(s, set string) bool {
	for i := range len(s) {
		if strings.IndexByte(set, s[i]) < 0 {
			return false
		}
	}
	return true
}

// idSource makes ids that increase strictly within one process, also when the clock does not.
type idSource struct {
	mu     sync.Mutex
	second int64
	tail   uint32
}

func (src *idSource) next(now time.Time) string {
	src.mu.Lock()
	defer src.mu.Unlock()
	second := now.Unix()
	tail := uint32(int64(now.Nanosecond())*1024/1e9)<<20 | randomBits(20)
	if second < src.second || second == src.second && tail <= src.tail {
		second, tail = src.second, src.tail+1
		if tail >= 1<<30 {
			second, tail = second+1, randomBits(20)
		}
	}
	src.second, src.tail = second, tail
	return time.Unix(second, 0).UTC().Format(idLayout) + "-" + tailText(tail)
}

func tailText(v uint32) string {
	var b [tailDigits]byte
	for i := tailDigits - 1; i >= 0; i-- {
		b[i] = idAlphabet[v&31]
		v >>= 5
	}
	return string(b[:])
}

func randomBits(n uint) uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.LittleEndian.Uint32(b[:]) & (1<<n - 1)
}

// idTime is the second that an id names.
func idTime(id string) (time.Time, error) {
	return time.ParseInLocation(idLayout, id[:len(idLayout)], time.UTC)
}

// NewID returns a fresh run id: the UTC second and a tail that sorts within it, such as 261121-034512-c3k7q2. Ids of
// one process are strictly increasing.
func (s *Store) NewID() string { return s.ids.next(s.now()) }

// Resolve finds the one run that ref means: a full id, an unambiguous prefix of one, an unambiguous prefix of the tail
// after its last dash, or "latest" or "-" for the newest run. Case does not matter, nor do i, l and o for 1, 1 and 0.
// It returns [ErrNotFound] or [ErrAmbiguous].
func (s *Store) Resolve(ref string) (string, error) {
	ids, err := s.runIDs()
	if err != nil {
		return "", err
	}
	if ref == "latest" || ref == "-" {
		if len(ids) == 0 {
			return "", fmt.Errorf("%w: no run was recorded yet", ErrNotFound)
		}
		return ids[0], nil
	}
	want := strings.NewReplacer("i", "1", "l", "1", "o", "0").Replace(strings.ToLower(ref))
	var found []string
	if want != "" {
		for _, id := range ids {
			if id == want {
				return id, nil
			}
			if strings.HasPrefix(id, want) || strings.HasPrefix(id[len(idLayout)+1:], want) {
				found = append(found, id)
			}
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w: %.40q (`hutch runs` lists them)", ErrNotFound, ref)
	case 1:
		return found[0], nil
	}
	shown := found[:min(len(found), 5)]
	more := ""
	if len(found) > len(shown) {
		more = fmt.Sprintf(" and %d more", len(found)-len(shown))
	}
	return "", fmt.Errorf("%w: %.40q fits %s%s", ErrAmbiguous, ref, strings.Join(shown, ", "), more)
}

// runIDs returns the ids of all runs on disk, newest first.
func (s *Store) runIDs() ([]string, error) {
	d, err := os.Open(s.paths.Runs())
	if err != nil {
		return nil, diskError("read", s.paths.Runs(), err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, diskError("read", s.paths.Runs(), err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !isRunID(n) })
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}
