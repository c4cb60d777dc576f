// Package microinit makes the program that stands above every command: pid 1 of the command's own process namespace,
// or the reaper of its orphans where it has none. It is a static ELF file of less than 3 KiB, assembled from this
// package's own .s files.
//
// bwrap has an init of its own, but that one folds "exited with 137" and "killed by signal 9" into one number, prints
// its own words into the command's stderr when the command cannot be executed, and cannot give a session its terminal.
// An init written in Go would know all this and cost 1.5 ms and three megabytes for each command; this one costs
// nothing that can be measured.
//
// # What it does
//
// It makes itself unreadable (PR_SET_DUMPABLE 0), blocks all signals, forks, and reaps whatever ends. It reports the
// command's wait status and then ends everything that the command has left behind. It does the same, without waiting
// for the command, when the other end of its socket shuts down or closes: so that end is how a command is killed, and
// what happens when who started it dies.
//
// With pid 1, ending everything is to exit: the kernel kills the namespace. Any other is a child subreaper: whatever
// the command's descendants do, fork twice or make sessions, they remain below it. It kills its children until there
// are none, those of the dead being its children by then, and exits with 1 when something had outlived the command.
//
// The child puts all signals back to their defaults, makes a session, moves [StderrFD] to 2, takes the terminal if the
// arguments say so, sets its rlimits, reports itself, closes all other descriptors, changes directory and tries to
// execute each candidate path in turn as execvp(3) does.
//
// # Arguments
//
//	init FLAGS DIR CANDIDATE… "" NAME=VALUE… "" ARG…
//
// FLAGS is "t" to take stdin as the controlling terminal, else "-". See [Args]. They do not come in argv, which every
// user of the host can read as long as the process lives, and the environment may hold secrets. Descriptor 8 is a memfd
// with a [Block] instead, which the child maps at an address known beforehand, so that nothing has to be decoded.
//
// One that waits is started before its command is known. After its first report it takes a message from descriptor 3,
// of any content and with five descriptors: the block, stdin, stdout, stderr and what closes when the command is
// executed. They replace those that it was started with, which must be open. Without a message there is no command.
//
// # Reports
//
// Descriptor 3 is a SOCK_SEQPACKET socket. Each report is two 32-bit words, a
// [Kind] and a value; the credentials that come with [Init] and [Started] are the
// process ids of this program and of the command as the reader sees them.
package microinit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// StatusFD is the descriptor on which the program reports.
const StatusFD = 3

// StderrFD is the descriptor that becomes the command's stderr. Descriptor 2 may be another program's until then, such
// as bwrap's, so that the two never mix; without a StderrFD it is the command's.
const StderrFD = 6

// BlockFD is the descriptor of the memfd that holds the [Block].
const BlockFD = 8

// Kind says what a report is about.
type Kind uint32

// The kinds of reports.
const (
	Ended   Kind = 1 // value: the command's wait status
	Started Kind = 2 // sent by the command's own process just before it is executed; value: its pid in its namespace
	NoExec  Kind = 3 // value: errno of the best candidate
	NoFork  Kind = 4 // value: errno
	NoDir   Kind = 5 // value: errno of chdir
	NoLimit Kind = 6 // value: errno of prlimit
	Init    Kind = 7 // sent first, by pid 1 itself
	NoBlock Kind = 8 // value: errno of mmap
)

// ReportSize is the size of a report in bytes.
const ReportSize = 8

// ParseReport decodes one report.
func ParseReport(b []byte) (Kind, uint32, error) {
	if len(b) != ReportSize {
		return 0, 0, fmt.Errorf("a report of pid 1 has %d bytes, not %d", len(b), ReportSize)
	}
	return Kind(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), nil
}

// ExecFD is the end of a pipe that closes when the command has been executed, or
// never will be. Nothing is written to it.
const ExecFD = 7

// Rlimit is one resource limit that the command gets, soft and hard alike.
type Rlimit struct {
	Resource int
	Value    uint64
}

const (
	loadAddr   = 0x400000
	limitsAt   = 0x800 // offset in the file and, from loadAddr, in memory: limitsAddr of the .s files
	tiedAt     = limitsAt - 0x10
	pathAt     = limitsAt - 0x30
	headerSize = 64 + 56
	maxRlimits = 16
	blockAddr  = 0x10000000 // where the .s files map the block
	maxBlock   = 0x1000000  // how much of it they map; the kernel takes less for a command
)

// program is machine code, not a function to call.
func program()    //nolint:unused // it is only measured, by bounds
func programEnd() //nolint:unused // likewise
func bounds() (start, end unsafe.Pointer)

// children lists the children of the thread that reads it.
const children = "/proc/thread-self/children"

// Options are how a program differs from others.
type Options struct {
	Limits []Rlimit // that the command gets
	// Tied has the command itself die when a process of the same user kills the program; otherwise it lives on as the
	// child of the next reaper.
	Tied bool
	// Waits has the program wait for its command: see the package comment.
	Waits bool
}

// Image returns the ELF file of a program.
func Image(o Options) ([]byte, error) {
	limits := o.Limits
	if len(limits) > maxRlimits {
		return nil, fmt.Errorf("%d rlimits do not fit in pid 1's table of %d", len(limits), maxRlimits)
	}
	start, end := bounds()
	size := int(uintptr(end) - uintptr(start))
	if size <= 0 || size > pathAt-headerSize {
		return nil, fmt.Errorf("pid 1's code has %d bytes; the linker moved it", size)
	}
	code := unsafe.Slice((*byte)(start), size)

	var machine uint16
	switch runtime.GOARCH {
	case "amd64":
		machine = 62
	case "arm64":
		machine = 183
	}
	total := uint64(limitsAt + 8 + len(limits)*24)
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	put := func(v ...any) {
		for _, x := range v {
			_ = binary.Write(&b, binary.LittleEndian, x) // a bytes.Buffer takes everything
		}
	}
	put(uint16(2), machine, uint32(1), uint64(loadAddr+headerSize), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0))
	put(uint32(1), uint32(5), uint64(0), uint64(loadAddr), uint64(loadAddr), total, total, uint64(0x1000))
	b.Write(code)
	b.Write(make([]byte, pathAt-b.Len()))
	b.WriteString(children)
	b.Write(make([]byte, tiedAt-b.Len()))
	put(o.Tied, o.Waits, [limitsAt - tiedAt - 2]byte{}, uint64(len(limits)))
	for _, l := range limits {
		put(uint64(l.Resource), l.Value, l.Value)
	}
	return b.Bytes(), nil
}

// Args returns the program's arguments after argv[0]: terminal says to take stdin
// as the controlling terminal, candidates are the paths to try. Env entries are
// NAME=VALUE. Nothing but an argument of the command itself may be empty, and
// nothing may hold a NUL.
func Args(terminal bool, dir string, candidates, env, argv []string) ([]string, error) {
	flags := "-"
	if terminal {
		flags = "t"
	}
	if dir == "" || len(candidates) == 0 || len(argv) == 0 {
		return nil, errors.New("a command needs a directory, a program and its arguments")
	}
	out := make([]string, 0, 6+len(candidates)+len(env)+len(argv))
	out = append(out, flags, dir)
	for _, part := range [][]string{candidates, env} {
		for _, s := range part {
			if s == "" {
				return nil, errors.New("an empty path or environment entry cannot be passed on")
			}
		}
		out = append(out, part...)
		out = append(out, "")
	}
	out = append(out, argv...)
	for _, s := range out {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, errors.New("a NUL cannot be part of an argument or of the environment")
		}
	}
	return out, nil
}

// Block returns what [BlockFD] has to hold for the arguments args, argv[0] included: a vector of pointers to them,
// ended by a null pointer, and then the strings, as they are to lie in memory. None may hold a NUL.
func Block(args []string) ([]byte, error) {
	size := 8 * (len(args) + 1)
	for _, s := range args {
		size += len(s) + 1
	}
	if size > maxBlock {
		return nil, fmt.Errorf("arguments and environment of %d bytes are more than any command can take", size)
	}
	b := make([]byte, 0, size)
	at := uint64(blockAddr + 8*(len(args)+1))
	for _, s := range args {
		b = binary.LittleEndian.AppendUint64(b, at)
		at += uint64(len(s)) + 1
	}
	b = binary.LittleEndian.AppendUint64(b, 0)
	for _, s := range args {
		b = append(append(b, s...), 0)
	}
	return b, nil
}
