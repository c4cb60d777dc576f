package limits

import (
	"strings"
	"testing"
)

// TestForeign reads the cgroups of containers, on either version and on a machine with both.
func TestForeign(t *testing.T) {
	own := func(path string) bool { return strings.Contains(path, "libpod-") }
	const v1 = "31 23 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n32 23 0:29 /host /cg/pids rw - cgroup cgroup rw,pids\n"
	const v2 = "33 23 0:30 / /cg/unified rw - cgroup2 cgroup2 rw\n"
	for name, tc := range map[string]struct{ mounts, cgroup string }{
		"v1":   {v1, "5:memory:/libpod-1\n4:pids:/host/libpod-1\n0::/libpod-1\n"},
		"both": {v2 + v1, "5:memory:/libpod-1\n4:pids:/host/libpod-1\n0::/libpod-1\n"},
		"v2":   {v2, "0::/libpod-1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &fakeKernel{t: t, root: t.TempDir()}
			k.put("/proc/self/mountinfo", tc.mounts)
			k.put("/proc/77/cgroup", tc.cgroup)
			for dir, files := range map[string]map[string]string{
				"/cg/memory/libpod-1":  {"memory.limit_in_bytes": "67108864\n", "memory.max_usage_in_bytes": "9\n", "memory.oom_control": "oom_kill 3\n"},
				"/cg/pids/libpod-1":    {"pids.max": "max\n", "pids.events": "max 4\n"},
				"/cg/unified/libpod-1": {"memory.max": "67108864\n", "memory.peak": "9\n", "memory.events": "oom_kill 3\n", "pids.max": "max\n", "pids.events": "max 4\n"},
			} {
				if name == "both" && dir == "/cg/unified/libpod-1" {
					files = map[string]string{"cgroup.procs": ""} // the controllers are those of v1
				}
				for file, text := range files {
					k.put(dir+"/"+file, text)
				}
			}
			f := k.system(0).of(77, own)
			if s := f.Stats(); s.OOMKills != 3 || s.PIDsHits != 4 || s.MemoryPeak != 9 {
				t.Errorf("%+v", s)
			}
			for _, v := range []struct {
				limit Limit
				want  uint64
				fails string
			}{{Memory, 64 << 20, ""}, {Memory, 32 << 20, "is not 33554432"}, {PIDs, 50, "pids.max is not 50"}} {
				if err := f.Verify(v.limit, v.want); (err == nil) != (v.fails == "") || err != nil && !strings.Contains(err.Error(), v.fails) {
					t.Errorf("%s %d: %v", v.limit, v.want, err)
				}
			}
			if k.system(0).of(77, func(string) bool { return false }) != nil || k.system(0).of(78, own) != nil {
				t.Error("a cgroup that is nobody's was found")
			}
		})
	}
	var none *Foreign
	if none.Verify(Memory, 1) == nil || none.Stats() != (Stats{}) {
		t.Error("a process without a cgroup has a limit or counters")
	}
}
