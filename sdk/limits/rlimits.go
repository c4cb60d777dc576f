package limits

// Rlimits are limits that a process takes on itself before it runs something else, because Go cannot set them between
// fork and exec. A nil leaves the limit as it is. The soft and the hard limit become the same.
type Rlimits struct {
	NProc  *uint64 `json:"nproc,omitempty"`  // processes of the user in its user namespace; not held for host root
	NoFile *uint64 `json:"nofile,omitempty"` // open files of each process
	FSize  *uint64 `json:"fsize,omitempty"`  // bytes of any one file; SIGXFSZ beyond
	Core   *uint64 `json:"core,omitempty"`   // bytes of a core dump
}

// NoCore is the limit of core dumps at which there are none. It is less than any file of a dump needs, and the one
// value at which the kernel does not start a program that kernel.core_pattern names, which would run on the host as
// root; with 0 it does. The system call filter keeps commands from changing it.
const NoCore = 1

// rlimits are what r needs beside s's cgroups. Core dumps are always off: a payload's memory is nobody's file.
func (s *Support) rlimits(r Request) Rlimits {
	core := uint64(NoCore)
	out := Rlimits{Core: &core}
	if r.Files != 0 {
		out.NoFile = &r.Files
	}
	if r.FileSize != 0 {
		out.FSize = &r.FileSize
	}
	if r.PIDs != 0 && s.Limits[PIDs].By == byNProc {
		n := uint64(r.PIDs)
		out.NProc = &n
	}
	return out
}

// The mechanism texts of rlimits.
const (
	byNProc  = "rlimit NPROC"
	byNoFile = "rlimit NOFILE"
	byFSize  = "rlimit FSIZE"
)
