package main

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/gitguard"
	"github.com/hutch-run/hutch/sdk/guestpath"
)

// Config is the backend "podman" block of a run file.
type Config struct {
	Image   string            `hutch:"image" doc:"Image that commands see as their root. One that lies on this machine needs no registry and no network. By default the one that PODMAN_IMAGE names in the environment of hutch, else docker.io/library/python:3-slim."`
	Pull    string            `hutch:"pull" default:"missing" doc:"When the image is asked from its registry: missing (only if it is not on this machine), always, newer, or never."`
	User    string            `hutch:"user" doc:"Numeric user of commands, as uid or uid:gid. By default the one whom the workspace belongs to: rootless that is the container's root, an unprivileged user outside; rootful it is the owner's own number."`
	Overlay string            `hutch:"overlay" default:"auto" doc:"How a private workspace keeps its writes apart: native (Podman's overlay volume), copy (commands write to a copy of the project, which takes its time and room), or auto, which is native where it works and copy elsewhere."`
	Runtime string            `hutch:"runtime" default:"auto" doc:"OCI runtime: crun, runc, or auto, which takes the first one that works on this machine."`
	Root    bool              `hutch:"read_only" default:"true" doc:"Whether the image's own files are read-only. Writes to them are dropped with the sandbox; with a disk limit they must be read-only."`
	TmpSize sdk.Bytes         `hutch:"tmp_size" default:"1GiB" doc:"Size of the memory-backed file systems at /tmp, at /dev/shm, and at each path of tmpfs; at least 1MiB. With a disk limit /tmp and /dev/shm count to that instead."`
	Tmpfs   []string          `hutch:"tmpfs" doc:"Further absolute paths in the sandbox with an empty memory-backed file system, for example \"/var/cache\"."`
	Env     map[string]string `hutch:"env" doc:"Variables of every command, unless the run sets them itself."`
	Git     string            `hutch:"git" default:"readonly" doc:"What commands may do to the git repositories in a shared workspace: readonly, or writable, which lets them commit. Then only hooks and settings that are there are read-only, and a program can plant others that your next git command runs."`
	CapAdd  []string          `hutch:"cap_add" doc:"Capabilities that commands keep, of CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, NET_BIND_SERVICE, SETGID and SETUID. By default they have none. Nothing can be gained by executing a program (no-new-privileges) either way."`
}

// The values of enumerated attributes.
var (
	pullPolicies = []string{"missing", "always", "newer", "never"}
	overlays     = []string{overlayAuto, overlayNative, overlayCopy}
	runtimes     = []string{runtimeAuto, "crun", "runc"}
	harmlessCaps = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"}
)

const runtimeAuto = "auto"

// Validate implements [sdk.Validator].
func (c *Config) Validate() (ds []sdk.Diagnostic) {
	bad := func(path, summary, detail string) {
		ds = append(ds, sdk.Diagnostic{Severity: sdk.SeverityError, Path: path, Summary: summary, Detail: detail})
	}
	oneOf := func(attribute, value string, allowed []string) {
		if !slices.Contains(allowed, value) {
			bad(attribute, attribute+" must be one of "+strings.Join(allowed, ", "), "it is "+strconv.Quote(value))
		}
	}
	if !isImage(c.image()) {
		bad("image", "this is no name of an image", "it is "+strconv.Quote(c.image()))
	}
	oneOf("pull", c.Pull, pullPolicies)
	oneOf("overlay", c.Overlay, overlays)
	oneOf("runtime", c.Runtime, runtimes)
	if _, _, err := parseUser(c.User); err != nil {
		bad("user", "a user is a number, or two with a colon: 1000 or 1000:1000", err.Error())
	}
	if c.TmpSize < 1<<20 {
		bad("tmp_size", "a file system needs at least 1MiB", "")
	}
	for i, p := range c.Tmpfs {
		at := fmt.Sprintf("tmpfs[%d]", i)
		switch {
		case !isPlainPath(p):
			bad(at, "a path in the sandbox must be absolute and clean, of letters, digits and . _ - / only",
				"it is "+strconv.Quote(p))
		case reserved(p):
			bad(at, "this path is made by the sandbox itself", "it is "+strconv.Quote(p))
		case slices.Contains(c.Tmpfs[:i], p):
			bad(at, "this path stands here twice", "it is "+strconv.Quote(p))
		}
	}
	for name := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			bad(fmt.Sprintf("env[%q]", name), "this is no name of a variable", "")
		}
	}
	for i, name := range c.CapAdd {
		if !slices.Contains(harmlessCaps, name) {
			bad(fmt.Sprintf("cap_add[%d]", i), "only these capabilities can be kept: "+strings.Join(harmlessCaps, ", "),
				"it is "+strconv.Quote(name))
		}
	}
	if c.Git != "" && c.Git != gitguard.ReadOnly && c.Git != gitguard.Writable {
		bad("git", "git must be readonly or writable", "it is "+strconv.Quote(c.Git))
	}
	return ds
}

// imageVariable names the image of blocks that name none, in the user's environment.
const imageVariable = "PODMAN_IMAGE"

// image is the image in use.
func (c *Config) image() string {
	if c.Image != "" {
		return c.Image
	}
	return cmp.Or(os.Getenv(imageVariable), "docker.io/library/python:3-slim")
}

// isImage says whether name can be an image's name, with registry, tag and digest, or an image's id. It must never be
// taken for an option of podman.
func isImage(name string) bool {
	return len(name) <= 512 && regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$`).MatchString(name)
}

// isPlainPath says whether p is an absolute clean path that no option parser of podman takes apart.
func isPlainPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && regexp.MustCompile(`^[A-Za-z0-9._/-]*$`).MatchString(p)
}

// parseUser reads uid or uid:gid; the gid is the uid where it is not given. An empty text is -1, -1.
func parseUser(s string) (uid, gid int, err error) {
	if s == "" {
		return -1, -1, nil
	}
	first, second, both := strings.Cut(s, ":")
	if !both {
		second = first
	}
	for to, n := range map[*int]string{&uid: first, &gid: second} {
		if *to, err = strconv.Atoi(n); err != nil || *to < 0 || *to > maxUser || strconv.Itoa(*to) != n {
			return 0, 0, fmt.Errorf("%q is no number from 0 to 65534", n)
		}
	}
	return uid, gid, nil
}

// madeHere are the directories that the sandbox makes itself: nothing else is mounted at them or below.
var madeHere = []string{"/proc", "/sys", "/dev", "/run", "/tmp", workspacePath, guestpath.Input(true),
	guestpath.Output(true), "/.hutch", "/etc"}

// reserved says whether nothing can be mounted at p.
func reserved(p string) bool {
	return p == "/" || slices.ContainsFunc(madeHere, func(m string) bool { return p == m || strings.HasPrefix(p, m+"/") })
}

func configOf(spec *sdk.Spec) *Config { return sdk.ConfigOf[Config](spec) }
