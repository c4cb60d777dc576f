package daemon

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"connectrpc.com/connect"
)

// account is a user of the sandbox.
type account struct {
	name, home string
	uid, gid   int
}

// account looks a user up; the name "" is the sandbox's default user.
func (d *Daemon) account(name string) (*account, error) {
	if name == "" {
		name = d.settings().DefaultUser
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("error looking up user '%s': %w", name, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, fmt.Errorf("user '%s': %w", name, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, fmt.Errorf("user '%s': %w", name, err)
	}
	return &account{name: u.Username, home: u.HomeDir, uid: uid, gid: gid}, nil
}

// caller returns the user that an RPC is made for: the name in its Basic authorization.
func (d *Daemon) caller(h http.Header) (*account, error) {
	name := ""
	if basic, ok := strings.CutPrefix(h.Get("Authorization"), "Basic "); ok {
		b, err := base64.StdEncoding.DecodeString(basic)
		if err != nil {
			return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("authorization: %w", err))
		}
		name, _, _ = strings.Cut(string(b), ":")
	}
	who, err := d.account(name)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid username: '%s'", name))
	}
	return who, nil
}

// resolve makes a client's path absolute: "" is the default directory, "~" and relative paths lead to the user's home.
// It does not confine: what begins with "../" leads out of the home.
func (d *Daemon) resolve(path string, who *account) (string, error) {
	if path == "" {
		path = d.settings().DefaultWorkdir
	}
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		if rest != "" && rest[0] != '/' {
			return "", fmt.Errorf("failed to expand path '%s' for user '%s': cannot expand user-specific home dir", path, who.name)
		}
		path = filepath.Join(who.home, rest)
	}
	if strings.ContainsRune(path, 0) {
		return "", errors.New("the path holds a NUL")
	}
	if filepath.IsAbs(path) {
		return path, nil
	}
	return filepath.Join(who.home, path), nil
}

// errIsFile says that something on the way to a path is no directory.
type errIsFile string

func (e errIsFile) Error() string { return "path is a file: " + string(e) }

// ensureDirs makes a directory and its parents.
func ensureDirs(path string) error {
	path = filepath.Clean(path)
	if st, err := os.Stat(path); err == nil {
		if !st.IsDir() {
			return errIsFile(path)
		}
		return nil
	}
	if path != "/" {
		if err := ensureDirs(filepath.Dir(path)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
