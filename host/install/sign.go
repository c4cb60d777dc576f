package install

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"aead.dev/minisign"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/release"
)

// Trust says whose releases are taken.
type Trust struct {
	// Required refuses a release that no trusted key has signed. Otherwise that is only said.
	Required bool
	// Keys are minisign public keys by the source that they are for: the text of a source, or the beginning of one up
	// to a slash.
	Keys map[string][]string
}

// ErrUnsigned says that a release was not signed by a key that is trusted, and has to be.
var ErrUnsigned = errors.New("no trusted key has signed it")

// Check says what is wrong with the keys.
func (t Trust) Check() error {
	for source, keys := range t.Keys {
		for _, k := range keys {
			var p minisign.PublicKey
			if err := p.UnmarshalText([]byte(k)); err != nil {
				return fmt.Errorf("the key for %q is no public key of minisign, which begins with RW: %w", source, err)
			}
		}
	}
	return nil
}

// forSource finds the keys for a source.
func (t Trust) forSource(source string) []string {
	var keys []string
	source = strings.TrimPrefix(source, "oci://")
	for prefix, k := range t.Keys {
		prefix = strings.TrimSuffix(strings.TrimPrefix(prefix, "oci://"), "/")
		if source == prefix || strings.HasPrefix(source, prefix+"/") {
			keys = append(keys, k...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// verify checks the signature of a manifest. by is the ID of the key, "" when none has signed and none had to; then why
// says what was wanting. A signature of a trusted key that does not fit is an error whatever is required.
func (t Trust) verify(source string, manifest, signature []byte) (by, why string, err error) {
	keys := t.forSource(source)
	if len(signature) == 0 {
		why = "it is not signed"
	} else {
		var s minisign.Signature
		if err := s.UnmarshalText(signature); err != nil {
			return "", "", fmt.Errorf("its signature is not a minisign signature: %w", err)
		}
		why = fmt.Sprintf("it is signed by %016X, and no key for %s in your configuration has that ID", s.KeyID, source)
		for _, k := range keys {
			var p minisign.PublicKey
			if err := p.UnmarshalText([]byte(k)); err != nil {
				return "", "", fmt.Errorf("the key for %q: %w", source, err)
			}
			if p.ID() != s.KeyID {
				continue
			}
			if !minisign.Verify(p, manifest, signature) {
				return "", "", fmt.Errorf("its signature by %016X is wrong: it was changed after it was signed", s.KeyID)
			}
			return fmt.Sprintf("%016X", s.KeyID), "", nil
		}
	}
	// Who trusts a key for a source wants that key's releases: a signature that can be left out protects from nobody.
	if t.Required || len(keys) > 0 {
		return "", "", fmt.Errorf("%w: %s", ErrUnsigned, why)
	}
	return "", why, nil
}

// Installed is a program that was installed, as a host is about to execute it.
type Installed struct {
	Name    string
	Program string // its path; manifest and signature lie beside it
	SHA256  string // of the program, in hex
	Source  string // as the lock file has it; "" when only a record names the program
	Dir     string // what a local source is relative to
}

// CheckInstalled refuses a program that this Trust would not install now. It decides from the signed manifest alone: a
// lock file is part of a project and can claim anything. It reads nothing when no signature is asked for.
func (t Trust) CheckInstalled(p Installed) error {
	source := Want{Source: p.Source, Dir: p.Dir}.trusted()
	if p.Source == "" {
		// A key that signed it for any source is trusted; the program is one that this store has used before.
		var all []string
		for _, keys := range t.Keys {
			all = append(all, keys...)
		}
		t.Keys = map[string][]string{"": all}
	}
	if !t.Required && len(t.forSource(source)) == 0 {
		return nil
	}
	raw, signature, err := kept(p.Program)
	if err != nil {
		return fmt.Errorf("%w: it has no manifest: %w", ErrUnsigned, err)
	}
	if _, _, err := t.verify(source, raw, signature); err != nil {
		return err
	}
	m, err := release.Parse(raw)
	if err != nil {
		return fmt.Errorf("its manifest: %w", err)
	}
	a, ok := m.For(backend.Platform)
	if m.Name != p.Name || !ok || a.BinarySHA256 != p.SHA256 {
		return fmt.Errorf("%w: the signed manifest beside it is of version %s of %q, whose program for %s has the SHA-256 %s, and this one has %s",
			ErrUnsigned, m.Version, m.Name, backend.Platform, a.BinarySHA256, p.SHA256)
	}
	if a.BesideSHA256 == "" {
		return nil
	}
	beside, err := backend.BesideSHA256(filepath.Dir(p.Program), p.Name)
	if err == nil && beside != a.BesideSHA256 {
		err = fmt.Errorf("%w: the files beside it are not those of its signed manifest", ErrUnsigned)
	}
	return err
}

// SignedBy is the ID of the trusted key that signed what is installed at program, "" for none. It is found out again,
// because a lock file can claim anything. source is what the lock file has, and dir the directory that it lies in.
func (t Trust) SignedBy(program, source, dir string) string {
	raw, signature, err := kept(program)
	if err != nil {
		return ""
	}
	by, _, err := t.verify(Want{Source: source, Dir: dir}.trusted(), raw, signature)
	if err != nil {
		return ""
	}
	return by
}
