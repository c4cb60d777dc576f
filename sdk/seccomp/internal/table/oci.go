package table

// Profile is a filter as Podman's --security-opt seccomp=FILE takes it.
type Profile struct {
	DefaultAction   string   `json:"defaultAction"`
	DefaultErrnoRet Errno    `json:"defaultErrnoRet"`
	Architectures   []string `json:"architectures"`
	Syscalls        []Rule   `json:"syscalls"`
}

// Rule is the action for calls whose arguments pass all of Args.
type Rule struct {
	Names    []string `json:"names"`
	Action   string   `json:"action"`
	ErrnoRet *Errno   `json:"errnoRet,omitempty"`
	Args     []Arg    `json:"args,omitempty"`
}

// Arg compares an argument with ValueTwo under the mask Value.
type Arg struct {
	Index    int    `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// OCI makes the profile for an architecture that libseccomp calls scmp. No other architecture is in it, so that
// libseccomp kills what makes a call of one. Calls of always are allowed, whatever the table says; those of never are
// refused.
func OCI(scmp string, never []string) *Profile {
	p := &Profile{DefaultAction: "SCMP_ACT_ERRNO", DefaultErrnoRet: ENOSYS, Architectures: []string{scmp}}
	changed := map[string]bool{}
	for _, name := range never {
		changed[name] = true
	}
	p.add(never, EPERM, nil)
	for _, g := range Groups() {
		var names []string
		for _, name := range g.Names() {
			if !changed[name] {
				names = append(names, name)
			}
		}
		if g.When == nil {
			p.add(names, g.Answer, nil)
			continue
		}
		for _, cube := range g.When.Allow {
			p.add(names, Allow, cube)
		}
		for _, cube := range g.When.Refuse {
			p.add(names, g.Answer, cube)
		}
	}
	return p
}

func (p *Profile) add(names []string, answer Errno, cube Cube) {
	// libseccomp takes no rule that repeats the default
	if len(names) == 0 || answer == p.DefaultErrnoRet && len(cube) == 0 {
		return
	}
	r := Rule{Names: names, Action: "SCMP_ACT_ALLOW"}
	if answer == Ignore {
		answer = 0
		r.Action, r.ErrnoRet = "SCMP_ACT_ERRNO", &answer
	} else if answer != Allow {
		r.Action, r.ErrnoRet = "SCMP_ACT_ERRNO", &answer
	}
	for _, t := range cube {
		mask, value := uint64(t.Mask)<<(t.Arg/high*32), uint64(t.Value)<<(t.Arg/high*32)
		if n := len(r.Args); n > 0 && r.Args[n-1].Index == t.Arg%high { // both halves; libseccomp takes an argument once
			r.Args[n-1].Value, r.Args[n-1].ValueTwo = r.Args[n-1].Value|mask, r.Args[n-1].ValueTwo|value
			continue
		}
		r.Args = append(r.Args, Arg{t.Arg % high, mask, value, "SCMP_CMP_MASKED_EQ"})
	}
	p.Syscalls = append(p.Syscalls, r)
}
