package main

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/gitguard"
)

// Config is the backend "bwrap" block of a run file.
type Config struct {
	ROBind  []string  `hutch:"ro_bind" doc:"Absolute host paths that the sandbox sees read-only at the same place, for example a toolchain below /opt. /usr is always there."`
	TmpSize sdk.Bytes `hutch:"tmp_size" default:"1GiB" doc:"Size of the memory-backed file system behind /tmp and /dev/shm, at least 1MiB. A disk limit replaces it."`
	Git     string    `hutch:"git" default:"readonly" doc:"What commands may do to the git repositories in a shared workspace: readonly, or writable, which lets them commit. Then only hooks and settings that are there are read-only, and a program can plant others that your next git command runs."`
	UID     int       `hutch:"uid" default:"1000" doc:"User and group id that commands see themselves as, 1 to 65533. It says nothing about the host, where they are nobody."`
}

// Validate implements [sdk.Validator].
func (c *Config) Validate() (ds []sdk.Diagnostic) {
	bad := func(path, summary, detail string) {
		ds = append(ds, sdk.Diagnostic{Severity: sdk.SeverityError, Path: path, Summary: summary, Detail: detail})
	}
	for i, p := range c.ROBind {
		at := fmt.Sprintf("ro_bind[%d]", i)
		switch {
		case !path.IsAbs(p) || path.Clean(p) != p:
			bad(at, "a bound path must be absolute and clean", "it is "+strconv.Quote(p))
		case reserved(p):
			bad(at, "this path cannot be bound",
				strconv.Quote(p)+" is made by the sandbox itself, or would show what must stay hidden")
		}
	}
	if c.TmpSize < 1<<20 {
		bad("tmp_size", "a file system needs at least 1MiB", "")
	}
	if c.UID < 1 || c.UID > 65533 {
		bad("uid", "a user id inside the sandbox is 1 to 65533", "it is "+strconv.Itoa(c.UID))
	}
	if c.Git != "" && c.Git != gitguard.ReadOnly && c.Git != gitguard.Writable {
		bad("git", "git must be readonly or writable", "it is "+strconv.Quote(c.Git))
	}
	return ds
}

// madeHere are the directories that the sandbox makes itself. Nothing can be
// bound in their place; below those that end with a slash, nothing either.
var madeHere = []string{"/", "/proc/", "/sys/", "/dev/", "/run/", "/tmp/", "/workspace/", "/input/", "/output/",
	"/.hutch/",
	"/etc", "/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/root", "/home", "/var", "/var/tmp/"}

// reserved says whether p cannot be bound.
func reserved(p string) bool {
	for _, m := range madeHere {
		if p == strings.TrimSuffix(m, "/") || p == m || (m != "/" && strings.HasSuffix(m, "/") && strings.HasPrefix(p, m)) {
			return true
		}
	}
	return false
}
