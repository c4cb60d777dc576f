package table

import (
	"encoding/binary"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"pgregory.net/rapid"
)

func arches(t *testing.T) []*Arch {
	t.Helper()
	a, err := Arches()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestEveryGroupHasReasonAndSource(t *testing.T) {
	known := map[string]bool{}
	for _, a := range arches(t) {
		for name := range a.Numbers {
			known[name] = true
		}
	}
	for table, groups := range tables {
		t.Run(table, func(t *testing.T) { everyGroup(t, groups, known) })
	}
}

// tables are those that programs are made from.
var tables = map[string][]Group{"filter": Groups(), "shared": Shared()}

func everyGroup(t *testing.T, groups []Group, known map[string]bool) {
	seen := map[string]string{}
	for _, g := range groups {
		if g.Title == "" || g.Reason == "" || !strings.HasPrefix(g.Source, "https://") {
			t.Errorf("%q lacks a title, a reason or a source", g.Title)
		}
		if g.When != nil && (g.Answer == Allow || g.When.Text == "") {
			t.Errorf("%q has a condition, and no answer for what it refuses or no text", g.Title)
		}
		for _, name := range g.Names() {
			if seen[name] != "" {
				t.Errorf("%s is in %q and %q", name, seen[name], g.Title)
			}
			seen[name] = g.Title
			if !known[name] {
				t.Errorf("%s of %q is not a system call of any architecture", name, g.Title)
			}
		}
	}
}

// TestS15NothingForbiddenIsAllowed keeps a later edit from allowing what must never be.
func TestS15NothingForbiddenIsAllowed(t *testing.T) {
	forbidden := strings.Fields(`unshare setns mount umount2 pivot_root chroot clone3 openat2 open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
		add_key keyctl request_key bpf io_uring_setup io_uring_enter io_uring_register userfaultfd modify_ldt perf_event_open ptrace
		process_vm_readv process_vm_writev pidfd_getfd kexec_load kexec_file_load init_module finit_module open_by_handle_at syslog`)
	conditional := strings.Fields("personality socket socketpair ioctl setrlimit prlimit64 fcntl clone chmod fchmod fchmodat fchmodat2 open openat creat mknod mknodat renameat2")
	for _, g := range slices.Concat(tables["filter"], tables["shared"]) {
		for _, name := range g.Names() {
			if slices.Contains(forbidden, name) && (g.Answer == Allow || g.When != nil) || slices.Contains(conditional, name) && g.When == nil && g.Answer == Allow {
				t.Errorf("%s is allowed by %q", name, g.Title)
			}
		}
	}
}

func (c Cube) matches(args [2 * high]uint32) bool {
	return !slices.ContainsFunc(c, func(t Test) bool { return args[t.Arg]&t.Mask != t.Value })
}

func matches(cubes []Cube, args [2 * high]uint32) bool {
	return slices.ContainsFunc(cubes, func(c Cube) bool { return c.matches(args) })
}

// anArgument draws values around those that conditions name.
func anArgument(g *Group) *rapid.Generator[uint32] {
	near := []uint32{0, all}
	for _, cube := range slices.Concat(g.When.Allow, g.When.Refuse) {
		for _, t := range cube {
			near = append(near, t.Value, t.Value^1, t.Value^1<<31)
		}
	}
	return rapid.OneOf(rapid.SampledFrom(near), rapid.Uint32(), rapid.Map(rapid.IntRange(0, 31), func(n int) uint32 { return 1 << n }))
}

// TestConditionsSplitAllArguments holds both sides of each condition to being each other's opposite.
func TestConditionsSplitAllArguments(t *testing.T) {
	for _, g := range slices.Concat(Groups(), SharedChanges()) {
		if g.When == nil {
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			var args [2 * high]uint32
			for i := range args {
				args[i] = anArgument(&g).Draw(t, "argument")
			}
			if matches(g.When.Allow, args) == matches(g.When.Refuse, args) {
				t.Fatalf("%q allows %v: %v, and refuses it: %v", g.Title, args, matches(g.When.Allow, args), matches(g.When.Refuse, args))
			}
		})
	}
}

// filter runs a program as the kernel would.
type filter struct {
	arch   *Arch
	groups []Group
	vm     *bpf.VM
}

func load(t *testing.T, a *Arch, groups []Group) *filter {
	t.Helper()
	raw, err := Assemble(a, groups)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 4096 {
		t.Fatalf("%d instructions", len(raw))
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the program cannot be taken apart")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return &filter{a, groups, vm}
}

func (f *filter) answer(t interface{ Fatalf(string, ...any) }, audit, nr uint32, args [2 * high]uint32) uint32 {
	data := binary.BigEndian.AppendUint32(nil, nr) // the virtual machine reads words in network order
	data = binary.BigEndian.AppendUint32(data, audit)
	data = binary.BigEndian.AppendUint64(data, 0)
	for i := range high {
		data = binary.BigEndian.AppendUint32(data, args[i])
		data = binary.BigEndian.AppendUint32(data, args[high+i])
	}
	ret, err := f.vm.Run(data)
	if err != nil {
		t.Fatalf("run the filter: %v", err)
	}
	return uint32(ret)
}

func TestS15ProgramAnswersAsTheTable(t *testing.T) {
	for _, a := range arches(t) {
		for name, groups := range tables {
			t.Run(name+"/"+a.Name, func(t *testing.T) { load(t, a, groups).answersAsTheTable(t, all) })
		}
	}
}

// answersAsTheTable tries every call, those above known with either their answer or ENOSYS.
func (f *filter) answersAsTheTable(t *testing.T, known uint32) {
	groups := map[int]*Group{}
	for _, g := range f.groups {
		for _, name := range g.Names() {
			if nr, ok := f.arch.Numbers[name]; ok {
				groups[nr] = &g
			}
		}
	}
	last := slices.Max(slices.Collect(maps.Keys(groups)))
	for nr := range last + 50 {
		g := groups[nr]
		if g == nil {
			g = &Group{Answer: ENOSYS}
		}
		check := func(t interface{ Fatalf(string, ...any) }, args [2 * high]uint32) {
			want := ret(g.Answer)
			if g.When != nil && matches(g.When.Allow, args) {
				want = ret(Allow)
			}
			if got := f.answer(t, f.arch.Audit, uint32(nr), args); got != want && (uint32(nr) <= known || got != ret(ENOSYS)) {
				t.Fatalf("call %d%v: %#x, want %#x", nr, args, got, want)
			}
		}
		if g.When == nil {
			check(t, [2 * high]uint32{})
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			var args [2 * high]uint32
			for i := range args {
				args[i] = anArgument(g).Draw(t, "argument")
			}
			check(t, args)
		})
	}
}

func TestS5ForeignArchitecturesAreRefused(t *testing.T) {
	for _, a := range arches(t) {
		f := load(t, a, Groups())
		for _, audit := range []uint32{0x40000003, 0x40000028, 0xc000003e, 0xc00000b7, 0} { // i386, arm, amd64, arm64
			if got := f.answer(t, audit, 0, [2 * high]uint32{}); audit != a.Audit && got != RetKillProcess {
				t.Errorf("%s: architecture %#x answers %#x", a.Name, audit, got)
			}
		}
		for _, nr := range a.Numbers {
			if got := f.answer(t, a.Audit, x32Bit|uint32(nr), [2 * high]uint32{}); got != ret(ENOSYS) {
				t.Errorf("%s: call %d of x32 answers %#x", a.Name, nr, got)
			}
		}
	}
}

// TestProfile looks for what libseccomp refuses: a rule that repeats the default, and two answers to one call.
func TestProfile(t *testing.T) {
	p := OCI("SCMP_ARCH_X86_64", []string{"sched_setaffinity"})
	bare := map[string]bool{}
	for _, r := range p.Syscalls {
		if r.ErrnoRet != nil && *r.ErrnoRet == p.DefaultErrnoRet && len(r.Args) == 0 {
			t.Errorf("%v repeats the default", r.Names)
		}
		for _, name := range r.Names {
			if bare[name] {
				t.Errorf("%s has two answers", name)
			}
			bare[name] = len(r.Args) == 0
			if name == "mount" && r.Action == "SCMP_ACT_ALLOW" {
				t.Error("mount is allowed")
			}
		}
	}
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for _, a := range arches(t) {
		for name, groups := range tables {
			raw, err := Assemble(a, groups)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile("../../" + name + "_" + a.Name + ".bpf")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, Bytes(raw)) {
				t.Errorf("the program %s for %s is out of date: run make generate", name, a.Name)
			}
		}
	}
	if got, err := os.ReadFile("../../../../docs/reference/syscalls.md"); err != nil || string(got) != Page() {
		t.Errorf("docs/reference/syscalls.md is out of date: run make generate (%v)", err)
	}
}
