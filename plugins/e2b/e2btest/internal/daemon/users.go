package daemon

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
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
	uid, uerr := strconv.Atoi(u.Uid)
	gid, gerr := strconv.Atoi(u.Gid)
	if err := errors.Join(uerr, gerr); err != nil {
		return nil, fmt.Errorf("user '%s': %w", name, err)
	}
	return &account{name: u.Username, home: u.HomeDir, uid: uid, gid: gid}, nil
}

func requestHeader(ctx context.Context) http.Header {
	call, _ := connect.CallInfoForHandlerContext(ctx)
	return call.RequestHeader()
}

// caller returns the user that an RPC is made for: the name in its Basic authorization.
func (d *Daemon) caller(ctx context.Context) (*account, error) {
	name := ""
	if basic, ok := strings.CutPrefix(requestHeader(ctx).Get("Authorization"), "Basic "); ok {
		b, err := base64.StdEncoding.DecodeString(basic)
		if err != nil {
			return nil, rpcError(connect.CodeUnauthenticated, "authorization: %w", err)
		}
		name, _, _ = strings.Cut(string(b), ":")
	}
	who, err := d.account(name)
	if err != nil {
		return nil, rpcError(connect.CodeUnauthenticated, "invalid username: '%s'", name)
	}
	return who, nil
}

// resolve makes a client's path absolute: "" is the default directory, "~" and relative paths start at the user's home.
// It does not confine: "../" leads out of the home.
func (d *Daemon) resolve(path string, who *account) (string, error) {
	if path == "" {
		path = d.settings().DefaultWorkdir
	}
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		if rest != "" && rest[0] != '/' {
			return "", fmt.Errorf("failed to expand path '%s' for user '%s': cannot expand user-specific home dir",
				path, who.name)
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
