package limits

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/confined"
)

// system is the machine as this package sees it. Tests put a directory in the place of /.
type system struct {
	root     string // put before every absolute path read from the kernel; "" for the real machine
	euid     int
	mkdir    func(dir string) error         // makes a cgroup; on a real cgroup file system the kernel fills it with files
	write    func(path, value string) error // writes a control file, which makes a real kernel do something
	writable func(paths ...string) error
}

func thisSystem() system {
	return system{
		euid:     os.Geteuid(),
		mkdir:    func(dir string) error { return os.Mkdir(dir, 0o755) },
		write:    write,
		writable: writable,
	}
}

// Probe looks for the best mechanism. It changes nothing and takes well below a millisecond.
func Probe() *Support { return thisSystem().probe() }

func (sys system) probe() *Support {
	mounts, err := sys.mounts()
	var own map[string]string
	if err == nil {
		own, err = sys.ownCgroups()
	}
	s := &Support{Mechanism: Rlimit, Limits: rlimitHows(sys.euid)}
	if err != nil {
		s.why(err.Error(), "")
		return s
	}
	v2, no2 := sys.findV2(mounts, own)
	v1, no1 := sys.findV1(mounts, own)
	switch n2, n1 := len(v2.limits()), len(v1.limits()); {
	case n2 > 0 && n2 >= n1:
		s.Mechanism, s.place, s.Where = CgroupV2, v2, v2.where()
		s.take(v2.limits())
		s.why("cgroup v2 "+v2.dir+" lacks the controller", no2.fix)
	case n1 > 0:
		s.Mechanism, s.place, s.Where = CgroupV1, v1, v1.where()
		s.take(v1.limits())
		s.why("no cgroup v1 hierarchy with this controller may be written", no1.fix)
	case no1.reason != "" && no2.reason != "":
		// On a hybrid machine v1 has the controllers, and what is said about it is what helps.
		s.why(no1.reason, no1.fix)
	case no2.reason != "":
		s.why(no2.reason, no2.fix)
	case no1.reason != "":
		s.why(no1.reason, no1.fix)
	default:
		s.why("no cgroup file system is mounted", "")
	}
	return s
}

// refusal says why a version of cgroups is of no use here, and which command would change that.
type refusal struct{ reason, fix string }

// take puts what cgroups hold in the place of what rlimits hold.
func (s *Support) take(hows map[Limit]How) {
	for l, h := range hows {
		s.Limits[l] = h
	}
}

// why gives the limits that cgroups would hold better, and here do not, their reason and fix.
func (s *Support) why(reason, fix string) {
	if confined.Here() {
		fix = confined.LimitsFix
	}
	for _, l := range []Limit{Memory, CPUs, PIDs} {
		h := s.Limits[l]
		if h.Scope == WholeGroup {
			continue
		}
		if h.Reason != "" {
			h.Reason = reason + "; " + h.Reason
		} else {
			h.Reason = reason
		}
		h.Fix = fix
		s.Limits[l] = h
	}
}

// rlimitHows is what is left without cgroups.
func rlimitHows(euid int) map[Limit]How {
	hows := map[Limit]How{
		Memory:   {Reason: "no rlimit bounds the memory of several processes together"},
		PIDs:     {By: byNProc, Scope: EachUser, Reason: "an rlimit counts all processes of the user in its user namespace"},
		CPUs:     {Reason: "no rlimit bounds the share of processor time"},
		Files:    {By: byNoFile, Scope: EachProcess},
		FileSize: {By: byFSize, Scope: EachProcess},
	}
	if euid == 0 {
		// The kernel does not count the processes of host root; a caller that drops to a user may say otherwise.
		h := hows[PIDs]
		h.Reason += ", and none of root's"
		hows[PIDs] = h
	}
	return hows
}

// Try makes a group with every cgroup limit that s claims, runs nothing in it, and removes it: the proof behind Probe.
func (s *Support) Try(ctx context.Context) error {
	if s.place == nil {
		return ErrNoCgroup
	}
	var r Request
	for l, h := range s.Limits {
		if h.Scope != WholeGroup {
			continue
		}
		switch l {
		case Memory:
			r.Memory = 64 << 20
		case CPUs:
			r.CPUs = 1
		case PIDs:
			r.PIDs = 16
		}
	}
	g, err := s.New(fmt.Sprintf("try-%d-%s", os.Getpid(), strconv.FormatInt(time.Now().UnixNano(), 36)), r)
	if err != nil {
		return err
	}
	return g.Destroy(ctx)
}

// mount is one mounted cgroup hierarchy.
type mount struct {
	dir         string          // where
	root        string          // the part of the hierarchy that is mounted there
	v2          bool            // the unified hierarchy
	controllers map[string]bool // v1 only
}

// mounts reads the cgroup hierarchies from mountinfo, in mount order.
func (sys system) mounts() ([]mount, error) {
	data, err := os.ReadFile(sys.root + "/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return parseMounts(string(data)), nil
}

func parseMounts(data string) []mount {
	var out []mount
	for line := range strings.Lines(data) {
		// 31 23 0:28 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 6 || len(t) < 3 || (t[0] != "cgroup" && t[0] != "cgroup2") {
			continue
		}
		m := mount{dir: unescape(h[4]), root: unescape(h[3]), v2: t[0] == "cgroup2"}
		if !m.v2 {
			m.controllers = make(map[string]bool)
			for o := range strings.SplitSeq(t[2], ",") {
				m.controllers[o] = true
			}
		}
		out = append(out, m)
	}
	return out
}

// unescape undoes the octal escapes of mountinfo: blank, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ownCgroups is cgroupsOf this process.
func (sys system) ownCgroups() (map[string]string, error) { return sys.cgroupsOf("self") }

// cgroupsOf maps each v1 controller, and "" for v2, to the path of a process's cgroup in that hierarchy.
func (sys system) cgroupsOf(process string) (map[string]string, error) {
	data, err := os.ReadFile(sys.root + "/proc/" + process + "/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find the cgroup of a process: %w", err)
	}
	out := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			out[c] = f[2]
		}
	}
	return out, nil
}

// dirOf is where the cgroup with path p shows below m, and whether it does at all.
func (sys system) dirOf(m mount, p string) (string, bool) {
	rel := p
	if m.root != "/" {
		var ok bool
		if rel, ok = strings.CutPrefix(p, m.root); !ok || (rel != "" && rel[0] != '/') {
			return "", false
		}
	}
	// A path with ".." is one outside the cgroup namespace that this mount shows.
	if strings.Contains(rel+"/", "/../") {
		return "", false
	}
	dir := strings.TrimSuffix(sys.root+m.dir+rel, "/")
	var st unix.Stat_t
	return dir, unix.Stat(dir, &st) == nil
}

// writable asks the kernel whether this process, with its effective ids, may write every path.
func writable(paths ...string) error {
	for _, p := range paths {
		if err := unix.Faccessat(unix.AT_FDCWD, p, unix.W_OK, unix.AT_EACCESS); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// swapOn reports whether the machine swaps at all, when not there is no swap to limit.
func (sys system) swapOn() bool {
	data, err := os.ReadFile(sys.root + "/proc/swaps")
	return err != nil || strings.Count(string(data), "\n") > 1
}
