// Package confined says whether this process is kept from making sandboxes by a container around it, and with which
// flags that container can be started instead.
package confined

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
)

// capSysAdmin is the bit of CAP_SYS_ADMIN.
const capSysAdmin = 21

// Engine names what started the container that this process is in, by the file that it leaves there: podman, docker,
// kubernetes, or the word of systemd for others such as lxc. It is "" outside of containers and where nothing says so.
func Engine() string {
	for _, m := range []struct{ file, engine string }{
		{"/var/run/secrets/kubernetes.io", "kubernetes"}, {"/run/.containerenv", "podman"}, {"/.dockerenv", "docker"},
	} {
		if _, err := os.Stat(m.file); err == nil {
			return m.engine
		}
	}
	b, err := os.ReadFile("/run/systemd/container")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Here reports whether sandboxes may be impossible here: a system call filter is in place, or CAP_SYS_ADMIN is out of
// reach, as in a container without privileges. Only an attempt shows whether they are.
var Here = sync.OnceValue(func() bool {
	status, err := os.ReadFile("/proc/self/status")
	return err == nil && read(status)
})

func read(status []byte) bool {
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":\t")
		switch name {
		case "Seccomp":
			if value != "0" {
				return true
			}
		case "CapBnd":
			if caps, err := strconv.ParseUint(value, 16, 64); err == nil && caps>>capSysAdmin&1 == 0 {
				return true
			}
		}
	}
	return false
}

// MinLandlock is the version of Landlock's interface that keeps a process from signalling others; Linux 6.12 has it.
const MinLandlock = 6

// Fix says what works in the container as it is, if anything, and how to start it so that sandboxes with namespaces can
// be made in it, as root or as an ordinary user of it.
func Fix() string {
	fix := fixes(Engine())
	if Landlock() >= MinLandlock {
		fix = "hutch run --backend landlock works here as it is, and isolates less; or " + fix
	}
	return fix
}

func fixes(engine string) string {
	switch engine {
	case "kubernetes":
		return "give the container securityContext.privileged: true in its pod"
	case "docker":
		return "start the container with: docker run --privileged; or without privileges, as an ordinary user of it: " +
			"docker run --user 1000 --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt " +
			"systempaths=unconfined"
	case "podman":
		return "start the container with: podman run --privileged; or without privileges, as an ordinary user of it: " +
			"podman run --user 1000 --security-opt seccomp=unconfined --security-opt unmask=ALL"
	}
	return "start hutch outside of the container or service that confines it, or give that its privileges (--privileged)"
}

// LimitsFix says how limits are held by cgroups in a container.
const LimitsFix = "start the container with --privileged, and hutch as its root, who can write to its cgroups then"

// StateFix says how hutch's state gets a file system on which layers can lie, which a container's own is not.
func StateFix() string {
	engine := Engine()
	if engine != "docker" {
		engine = "podman"
	}
	return "put hutch's state on a volume or in memory, as with: " + engine +
		" run --tmpfs /hutch:mode=1777 -e HUTCH_HOME=/hutch/state"
}
