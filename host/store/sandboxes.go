package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
)

// maxSandboxName bounds the name of a sandbox or of a project, in bytes.
const maxSandboxName = 64

// CheckName refuses what cannot be the name of a sandbox or a project: it begins with a letter, so that no option and
// no id is taken for one, and holds letters, digits, '_', '.' and '-', so that NAME:PATH is not ambiguous.
func CheckName(name string) error {
	const upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const allowed = letters + upper + digits + "_.-"
	if name != "" && len(name) <= maxSandboxName && madeOf(name[:1], letters+upper) && madeOf(name, allowed) {
		return nil
	}
	return fmt.Errorf("%.80q cannot be a name: want up to %d letters, digits, '_', '.' and '-', a letter first",
		name, maxSandboxName)
}

// Owner is what backends mark everything with that they make for this store, and for no other.
func (s *Store) Owner() string {
	sum := sha256.Sum256([]byte(s.paths.Data))
	return "hutch-" + hex.EncodeToString(sum[:6])
}

// Original returns the top of the store that this one is a copy of, so that the sandbox id, which was made in the
// store at home, is another one's: nothing here may touch it. It is "" when the sandbox was made here, or when the
// store was moved, so that nothing is left there.
func (s *Store) Original(home, id string) string {
	if home == "" || home == s.paths.Data {
		return ""
	}
	there, err := os.Stat(Paths{Data: home}.SandboxState(id))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if here, herr := os.Stat(s.paths.SandboxState(id)); err == nil && herr == nil && os.SameFile(here, there) {
		return "" // the same store by another path
	}
	return home
}

// lockNames keeps other processes from giving out names until the returned file is closed.
func (s *Store) lockNames() (*os.File, error) {
	path := filepath.Join(s.paths.Sandboxes(), ".names.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, diskError("open", path, err)
	}
	if err := lockFile(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, diskError("lock", path, err)
	}
	return f, nil
}

// freeName checks that name is free, or finds one like want. The names are locked.
func (s *Store) freeName(name, want string) (string, error) {
	list, err := s.Sandboxes()
	if err != nil {
		return "", err
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(list, func(i SandboxInfo) bool { return i.Name == name && i.State != SandboxRemoving })
	}
	if name != "" {
		if err := CheckName(name); err != nil {
			return "", err
		}
		if taken(name) {
			return "", fmt.Errorf("%w: there is a sandbox %q (`hutch rm %s` removes it)", ErrNameTaken, name, name)
		}
		return name, nil
	}
	want = likeName(want)
	for n := 1; ; n++ {
		name = want
		if n > 1 {
			name = fmt.Sprintf("%s-%d", want, n)
		}
		if !taken(name) {
			return name, nil
		}
	}
}

// likeName makes a name out of any text, with room for a number behind it.
func likeName(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r < 0x80 && madeOf(string(r), letters+digits+"_.-"):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	name := strings.TrimLeft(b.String(), digits+"_.-")
	name = strings.TrimRight(name[:min(len(name), maxSandboxName-8)], "_.-")
	if name == "" {
		return "sandbox"
	}
	return name
}

// Sandboxes returns the records of all persistent sandboxes, oldest first. One that cannot be read is listed as
// [SandboxDamaged].
func (s *Store) Sandboxes() ([]SandboxInfo, error) {
	entries, err := os.ReadDir(s.paths.Sandboxes()) // sorted, and ids sort by time
	if err != nil {
		return nil, diskError("read", s.paths.Sandboxes(), err)
	}
	var list []SandboxInfo
	for _, e := range entries {
		if !isRunID(e.Name()) {
			continue
		}
		info, err := s.readSandbox(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		list = append(list, info)
	}
	return list, nil
}

// readSandbox reads sandbox.json. A record that cannot be read is in the value, as damaged; the error says only that
// there is none. A sandbox whose owner is gone is [SandboxRemoving], whatever its record says.
func (s *Store) readSandbox(id string) (SandboxInfo, error) {
	var info SandboxInfo
	path := filepath.Join(s.paths.Sandbox(id), sandboxFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(s.paths.Sandbox(id)); lerr != nil {
			return info, err
		}
	}
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	switch {
	case err != nil:
	case info.Schema != SandboxSchema:
		err = fmt.Errorf("%s: schema %.40q is not %s", sandboxFile, info.Schema, SandboxSchema)
	case info.ID != id || CheckName(info.Name) != nil:
		err = fmt.Errorf("%s: it is the record of %.40q, %.40q", sandboxFile, info.ID, info.Name)
	case info.State != SandboxCreating && info.State != SandboxReady && info.State != SandboxRemoving:
		err = fmt.Errorf("%s: state %.40q", sandboxFile, info.State)
	}
	if err != nil {
		made, _ := idTime(id)
		return SandboxInfo{Schema: SandboxSchema, ID: id, State: SandboxDamaged, Created: made, Damage: err.Error()}, nil
	}
	if info.State == SandboxCreating && !info.Host.Alive() || info.EndsWith != nil && !info.EndsWith.Alive() {
		info.State = SandboxRemoving
	}
	return info, nil
}

// FindSandbox finds the one sandbox that ref means: a name, a full id, or an unambiguous prefix of an id or of the last
// part of one. It returns [ErrNoSandbox] or [ErrAmbiguous].
func (s *Store) FindSandbox(ref string) (SandboxInfo, error) {
	list, err := s.Sandboxes()
	if err != nil {
		return SandboxInfo{}, err
	}
	var named, found []SandboxInfo
	for _, i := range list {
		switch {
		case ref != "" && i.Name == ref && i.State == SandboxRemoving: // another one may have the name by now
			named = append(named, i)
		case ref != "" && (i.Name == ref || i.ID == ref):
			return i, nil
		case ref != "" && (strings.HasPrefix(i.ID, ref) || strings.HasPrefix(i.ID[len(idLayout)+1:], ref)):
			found = append(found, i)
		}
	}
	if len(named) > 0 {
		return named[0], nil
	}
	switch len(found) {
	case 0:
		return SandboxInfo{}, fmt.Errorf("%w: %.80q (`hutch ps` lists them)", ErrNoSandbox, ref)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, i := range found[:min(len(found), 5)] {
		names = append(names, i.ID+" ("+i.Name+")")
	}
	return SandboxInfo{}, fmt.Errorf("%w: %.40q fits %d sandboxes, among them %s",
		ErrAmbiguous, ref, len(found), strings.Join(names, ", "))
}

// OpenSandbox locks the record of one sandbox, by its full id, for this process alone or together with others, and
// waits up to timeout for another process that holds it: then the error is [ErrInUse]. It returns the record in
// whatever state it is.
func (s *Store) OpenSandbox(
	ctx context.Context, id string, alone bool, timeout time.Duration) (*SandboxRecord, error) {
	dir := s.paths.Sandbox(id)
	gone := fmt.Errorf("%w: %.80q", ErrNoSandbox, id)
	if !isRunID(id) {
		return nil, gone
	}
	how, mode := unix.LOCK_SH, os.O_RDONLY // so that a store on a read-only file system can be looked at
	if alone {
		how, mode = unix.LOCK_EX, os.O_RDWR
	}
	path := filepath.Join(dir, sandboxLockFile)
	f, err := os.OpenFile(path, mode|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(dir); lerr != nil {
			return nil, gone
		}
		// Somebody took it away by hand; without a lock there would be no way to remove the sandbox.
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	if err != nil {
		return nil, diskError("open", path, err)
	}
	if err := flock.Try(f, how); errors.Is(err, flock.ErrLocked) && timeout > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, timeout, flock.ErrLocked)
		err = flock.Wait(wait, f, how)
		cancel()
		if err != nil {
			f.Close()
			return nil, lockError(id, err)
		}
	} else if err != nil {
		f.Close()
		return nil, lockError(id, err)
	}
	info, err := s.readSandbox(id)
	if err != nil || !sameFile(f, path) {
		f.Close()
		return nil, gone
	}
	r := &SandboxRecord{lock: f, info: info}
	r.open(s, id, dir)
	return r, nil
}

func lockError(id string, err error) error {
	if errors.Is(err, flock.ErrLocked) {
		return ErrInUse
	}
	return fmt.Errorf("lock sandbox %s: %w", id, err)
}
