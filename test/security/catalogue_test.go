package security

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/test/e2e"
)

// attack is one row of the catalogue.
type attack struct {
	id    string
	about string
	args  func(w *world) []string // for the probe
	flags []string                // for hutch run

	mode string // of the workspace, such as "shared"; "" is private

	// hurt looks at the host afterwards and says what harm was done; nil where the
	// probe's own verdict is enough. It undoes the harm.
	hurt func(w *world) string
	// judge finds what is wrong with the outcome, in place of the probe's verdict.
	judge func(o outcome) string
	// bare is the control, where the attack itself cannot be.
	bare func(t *testing.T, w *world)
	// terminal gives the probe a terminal.
	terminal bool

	// bites says for whom the attack gets through without a sandbox.
	bites who
	// ends is the cause that hutch must give when it, or the kernel, stops a bomb; "" for other attacks, which live to
	// tell.
	ends string
}

// who is a set of users.
type who int

const (
	root who = 1 << iota
	user
	nobody   who = 0 // nothing here to win: the kernel or the machine refuses it by itself
	everyone     = root | user
)

func (s who) has(uid int) bool {
	if uid == 0 {
		return s&root != 0
	}
	return s&user != 0
}

func none(*world) []string { return nil }

func words(s ...string) func(*world) []string { return func(*world) []string { return s } }

// bomb adds a mark to the probe's arguments, by which daemonLeft finds what is left of it.
func bomb(s ...string) func(*world) []string {
	return func(w *world) []string { return append(slices.Clone(s), w.nonce+"-bomb") }
}

// marked is the world's nonce with a suffix, as an argument of the probe.
func marked(suffix string) func(*world) []string {
	return func(w *world) []string { return []string{w.nonce + suffix} }
}

var catalogue = []attack{
	{id: "C0", about: "honest code: writes, ends with 7", bites: nobody, args: none, judge: honest, hurt: projectChanged},

	// Files.
	{id: "FS-01", about: "write anywhere", bites: everyone, args: func(w *world) []string {
		return append([]string{w.marker}, markerDirs(w)...)
	}, hurt: markersLeft},
	{id: "FS-03", about: "write through a symlink in the workspace", bites: everyone,
		args: func(w *world) []string { return []string{w.decoy} }, hurt: decoyTouched},
	{id: "FS-04", about: "reach a secret through /proc/*/root, cwd, fd and ..", bites: everyone,
		args: func(w *world) []string { return []string{w.secrets["vartmp"], w.nonce} }},
	{id: "FS-05", about: "hard link a file from outside", bites: everyone,
		args: func(w *world) []string { return []string{w.decoy} }},
	{id: "FS-06", about: "open and make device nodes", bites: root, args: none},
	{id: "FS-07", about: "remount read-only mounts", bites: root,
		args: func(w *world) []string { return []string{w.marker} }, hurt: markersLeft},

	// Secrets.
	{id: "SEC-01", about: "read a key in ~/.ssh", bites: everyone, args: secret("ssh")},
	{id: "SEC-02", about: "read /etc/shadow", bites: root, args: words("", "/etc/shadow", "/etc/gshadow")},
	{id: "SEC-03", about: "read another file in ~", bites: everyone, args: secret("home")},
	{id: "SEC-04", about: "read secrets in /var/tmp, /tmp and /etc", bites: everyone, args: secret("vartmp", "tmp", "etc")},
	{id: "ENV-01", about: "read a token from any environment", bites: everyone, args: marked("")},

	// Privileges.
	{id: "PRV-01", about: "no new privileges", bites: everyone, args: none},
	{id: "PRV-02", about: "no capability", bites: everyone, args: none},
	{id: "PRV-03", about: "seccomp filter on", bites: everyone, args: none},
	{id: "PRV-04", about: "make a user namespace", bites: everyone, args: none},
	{id: "PRV-05", about: "reach risky system calls", bites: everyone, args: none},
	{id: "PRV-06", about: "write sensitive files in /proc and /sys", bites: root, args: none},
	{id: "PRV-07", about: "read the kernel log", bites: root, args: none},
	{id: "PRV-08", about: "S5: make 32-bit and x32 system calls", bites: nobody, args: none}, // many kernels know neither; sdk/seccomp's tests run the filter itself
	{id: "PRV-09", about: "S1: make set-id files", bites: everyone, args: none, mode: "shared", hurt: setIDFiles},
	{id: "PRV-10", about: "S5: open sockets of other families and netlink protocols", bites: everyone, args: none},
	{id: "PRV-11", about: "S5, S16: personality and modify_ldt", bites: everyone, args: none},
	{id: "PRV-12", about: "S1: be root to the host", bites: root, args: none},
	{id: "PRV-13", about: "S16: read about the machine in /proc and /sys", bites: everyone, args: none},

	// Network.
	{id: "NET-01", about: "reach a service on the host's loopback", bites: everyone,
		args: func(w *world) []string { return []string{w.tcp} }},
	{id: "NET-02", about: "reach an abstract socket", bites: everyone,
		args: func(w *world) []string { return []string{w.abstract} }},
	{id: "NET-03", about: "find an interface or a route", bites: everyone, args: none},
	{id: "NET-04", about: "reach a pathname socket", bites: everyone,
		args: func(w *world) []string { return []string{w.socket} }},

	// Processes.
	{id: "PROC-01", about: "see host processes", bites: everyone, args: marked("")},
	{id: "PROC-02", about: "signal a host process", bites: everyone,
		args: func(w *world) []string { return []string{fmt.Sprint(w.victim.Process.Pid)} }, hurt: victimGone},
	{id: "PROC-03", about: "leave sixteen daemons behind", bites: everyone, args: marked("-daemon"), hurt: daemonLeft("-daemon"), bare: leavesDaemons},
	{id: "PROC-04", about: "outlive the time limit by ignoring every signal", bites: everyone, args: marked("-stubborn"),
		flags: []string{"--timeout", "500ms"}, judge: timedOut, hurt: daemonLeft("-stubborn"), bare: ignoresTerm},

	// Terminals.
	{id: "TTY-01", about: "type into the terminal", bites: root, args: none, terminal: true}, // kernels with dev.tty.legacy_tiocsti=0 refuse users

	// Resources.
	{id: "RES-01", about: "3,000 processes that ignore signals", bites: everyone, args: bomb("3000", "64"),
		flags: []string{"--pids", "64"}, ends: "pids", hurt: daemonLeft("-bomb")},
	{id: "RES-12", about: "S8: 2,000 processes where nobody asks for a limit", bites: everyone, args: bomb("2000", "1024"),
		ends: "pids", hurt: daemonLeft("-bomb")},
	{id: "RES-02", about: "1.5 GiB of memory", bites: everyone, args: bomb("1536"),
		flags: []string{"--memory", "256MiB"}, ends: "oom", hurt: daemonLeft("-bomb")},
	{id: "RES-07", about: "1.5 GiB in a memfd", bites: everyone, args: bomb("1536"),
		flags: []string{"--memory", "256MiB"}, ends: "oom", hurt: daemonLeft("-bomb")},
	{id: "RES-08", about: "S7: 40 MiB in each of 16 processes", bites: everyone, args: bomb("16", "40", "256"),
		flags: []string{"--memory", "256MiB"}, ends: "oom", hurt: daemonLeft("-bomb")},
	{id: "RES-10", about: "512 MiB in each memory file system", bites: everyone, args: bomb("512", "/tmp", "/dev/shm"),
		flags: []string{"--memory", "256MiB"}, ends: "oom", hurt: daemonLeft("-bomb")},
	{id: "RES-03", about: "a file of 512 MiB in every writable place", bites: everyone, args: bomb("512", ".", "/tmp", "/dev/shm"),
		flags: []string{"--disk", "64MiB"}, ends: "disk", hurt: daemonLeft("-bomb")},
	{id: "RES-09", about: "S6: 30,000 files in every writable place", bites: everyone, args: bomb("30000", ".", "/tmp", "/dev/shm"),
		flags: []string{"--disk", "64MiB"}, ends: "disk", hurt: daemonLeft("-bomb")},
	{id: "RES-05", about: "70,000 file descriptors", bites: everyone, args: manyDescriptors,
		flags: []string{"--files", "256"}, ends: "exited"},
	{id: "RES-11", about: "2 GiB of output, of which the log keeps 16 MiB", bites: everyone, args: bomb("2048"),
		judge: printedAll, hurt: storeGrown, bare: printsAll},
	{id: "RES-06", about: "allow core dumps, which a program of the host may take", bites: everyone, args: none},

	// The workspace.
	{id: "WS-01", about: "litter in the project", bites: everyone, args: none, hurt: projectChanged},
	{id: "WS-02", about: "plant git hooks and configuration", bites: everyone, args: none, hurt: projectChanged},
	{id: "WS-03", about: "plant git hooks and configuration in a shared workspace", bites: everyone, args: none, hurt: projectChanged, mode: "shared"},
}

// setIDFiles looks for set-id files in the project.
func setIDFiles(w *world) string {
	var found []string
	_ = filepath.WalkDir(w.project, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if st, err := d.Info(); err == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			found = append(found, p)
		}
		return nil
	})
	return strings.Join(found, " ")
}

// manyDescriptors asks for 70,000, or for what the machine itself allows where that is less.
func manyDescriptors(*world) []string {
	var rl unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &rl) == nil && rl.Max < 70_100 {
		return []string{fmt.Sprint(rl.Max - 100)}
	}
	return []string{"70000"}
}

func secret(names ...string) func(*world) []string {
	return func(w *world) []string {
		args := []string{w.nonce}
		for _, name := range names {
			if p, ok := w.secrets[name]; ok {
				args = append(args, p)
			}
		}
		return args
	}
}

func markerDirs(w *world) []string {
	return []string{"/", "/etc", "/usr/share", "/usr/local/bin", "/var/tmp", "/tmp", "/dev/shm", "/run", w.home, filepath.Dir(w.home)}
}

func decoyTouched(w *world) string {
	b, err := os.ReadFile(w.decoy)
	if err == nil && string(b) == "untouched\n" {
		return ""
	}
	return fmt.Sprintf("%s now holds %q (%v)", w.decoy, b, err)
}

func victimGone(w *world) string {
	if e2e.Eventually(100*time.Millisecond, func() bool { return e2e.Ended(w.victim.Process.Pid) }) {
		return "the host's process was terminated"
	}
	return ""
}

// projectChanged compares the project with what newWorld made.
func projectChanged(w *world) string {
	var harm []string
	expect := map[string]string{"kept": "kept\n", "dir/in": "in\n",
		".git/config": "[core]\n\tbare = false\n", ".git/HEAD": "ref: refs/heads/main\n"}
	for name, content := range expect {
		p := filepath.Join(w.project, name)
		if b, err := os.ReadFile(p); err != nil || string(b) != content {
			harm = append(harm, name+" changed")
		}
	}
	if st, err := os.Stat(filepath.Join(w.project, "kept")); err == nil && st.Mode().Perm() != 0o644 {
		harm = append(harm, "kept has mode "+st.Mode().String())
	}
	for dir, want := range map[string]string{".": ".git dir kept probe", ".git": "HEAD config hooks", ".git/hooks": "", "dir": "in"} {
		entries, _ := os.ReadDir(filepath.Join(w.project, dir))
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != want {
			harm = append(harm, fmt.Sprintf("%s holds %q, not %q", dir, got, want))
		}
	}
	return strings.Join(harm, "; ")
}
