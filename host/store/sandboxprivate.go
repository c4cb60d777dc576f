package store

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// maxPrivate bounds private.json, in bytes.
const maxPrivate = 64 << 20

// private is what private.json holds.
type private struct {
	// Nonce is random, so that the file's hash in the event chain helps nobody to guess a secret.
	Nonce string          `json:"nonce"`
	Input []FileRef       `json:"input,omitempty"` // the files below input/, of which no event speaks because some are secret
	Value json.RawMessage `json:"value"`
}

// WritePrivate keeps what later commands need and nobody shall be shown, such as the values of variables, and the hashes
// of the files below [SandboxRecord.InputDir], which must be complete. It is JSON, in a file of mode 0600.
func (r *SandboxRecord) WritePrivate(v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}
	p := private{Nonce: rand.Text(), Value: value}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return diskError("open", r.dir, err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), sandboxInputDir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		ref, err := refFile(root, name)
		p.Input = append(p.Input, ref)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("read", filepath.Join(r.dir, sandboxInputDir), err)
	}
	data, err := marshalIndent(p)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replace(sandboxPrivateFile, data)
}

// ReadPrivate reads what WritePrivate wrote into v, which stays as it is when nothing was.
func (r *SandboxRecord) ReadPrivate(v any) error {
	path := filepath.Join(r.dir, sandboxPrivateFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var p private
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err == nil {
		if p.Nonce != "" {
			b = p.Value // else it is of a version that wrote the value alone
		}
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return diskError("read", path, err)
	}
	return nil
}

// readInputRefs reads what a record's private part says about its input; nothing where there is none.
func readInputRefs(root *os.Root) ([]FileRef, error) {
	b, err := safefile.ReadFile(root, sandboxPrivateFile, maxPrivate)
	if refused := (*safefile.Error)(nil); errors.As(err, &refused) && refused.Reason == safefile.ReasonMissing {
		return nil, nil // which the chain speaks of when there was one
	}
	if err != nil {
		return nil, err
	}
	var p private
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	return p.Input, nil
}
