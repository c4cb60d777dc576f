package main

import (
	"encoding/json"
	"slices"
	"testing"
)

const someProfile = `{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"archMap":[{"architecture":"SCMP_ARCH_X86_64"}],"syscalls":[
	{"names":["read","clone","mount","unshare"],"action":"SCMP_ACT_ALLOW","args":[],"includes":{},"excludes":{}},
	{"names":["setns"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}},
	{"names":["socket"],"action":"SCMP_ACT_ALLOW"},
	{"names":["userfaultfd"],"action":"SCMP_ACT_ERRNO","errnoRet":1}]}`

func TestNarrow(t *testing.T) {
	for _, mounts := range []bool{false, true} {
		out, err := narrow([]byte(someProfile), mounts)
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			DefaultAction string        `json:"defaultAction"`
			ArchMap       []any         `json:"archMap"`
			Syscalls      []seccompRule `json:"syscalls"`
		}
		if err := json.Unmarshal(out, &p); err != nil {
			t.Fatal(err)
		}
		if p.DefaultAction != "SCMP_ACT_ERRNO" || len(p.ArchMap) != 1 {
			t.Errorf("%+v", p)
		}
		for _, r := range p.Syscalls {
			for _, name := range r.Names {
				bare := len(r.Args) == 0 || string(r.Args) == "[]"
				switch {
				case r.Action != "SCMP_ACT_ALLOW":
				case name == "mount" && mounts, name == "read":
				case slices.Contains([]string{"clone", "socket"}, name) && !bare:
				default:
					t.Errorf("mounts %v: %s is allowed: %+v", mounts, name, r)
				}
			}
		}
	}
	for _, bad := range []string{"", "{", "[]", `{"syscalls":3}`, `{"syscalls":[3]}`} {
		if _, err := narrow([]byte(bad), false); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
