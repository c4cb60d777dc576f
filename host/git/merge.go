package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/host/store"
)

// ErrOverlap says that two versions of a text changed the same place of it.
var ErrOverlap = errors.New("both sides changed the same lines")

// MergeText joins two versions of a text that have base in common, as git does. It knows no repository and no
// attributes. The error is [ErrOverlap] where there is no answer but a person's.
func MergeText(ctx context.Context, ours, base, theirs []byte) ([]byte, error) {
	dir, err := store.MkdirTemp("merge")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string][]byte{"ours": ours, "base": base, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	out := bounded{max: maxOutput}
	_, err = Tool{Dir: dir, Private: true}.Do(ctx, Call{Stdout: &out}, "merge-file", "-p", "-q", "ours", "base", "theirs")
	if n := code(err); n > 0 && n < 128 { // the number of places
		return nil, ErrOverlap
	}
	return out.Bytes(), err
}

// Blob reads the content that git has under a name, as it is stored. It must have exactly size bytes.
func (r *Repo) Blob(ctx context.Context, name string, size int64) ([]byte, error) {
	out := bounded{max: int(size)}
	if _, err := r.Do(ctx, Call{Stdout: &out}, "cat-file", "blob", name); err != nil {
		return nil, err
	}
	if int64(out.Len()) != size {
		return nil, fmt.Errorf("git has %d bytes under %s, not %d", out.Len(), name, size)
	}
	return out.Bytes(), nil
}
