// Package wire is what the Lima backend and its program in the guest say to each other.
//
// The backend starts that program with the VM's ssh, one session for all it does. The program prints one line, [Hello],
// and from then on both ends speak yamux over its standard streams, so nothing of a command ever passes a shell: not
// its arguments, not its environment, not its output.
//
// The backend opens all streams. Each begins with one [Request] as a line of JSON. What follows depends on its Op; the
// last thing the guest says on a stream, where it says anything, is a [Reply] or an [Event] as a line of JSON. The three
// streams that are opened right after that of a command are the command's stdin, stdout and stderr, and hold nothing
// else. The end of the session is the end of its commands.
package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// Version is the version of the protocol. The backend installs the program that it was built with, so the two only
// differ when something is wrong.
const Version = 2

// Op says what a stream is for.
type Op string

// The operations.
const (
	OpCreate   Op = "create"   // Sandbox: make its directories and its cgroup -> Reply
	OpFill     Op = "fill"     // ID, Part, then a tar up to the end of the stream: unpack it -> Reply
	OpSnapshot Op = "snapshot" // ID: remember what the workspace looks like -> Reply
	OpSync     Op = "sync"     // ID: have what was written of it reach the disk -> Reply
	OpChanges  Op = "changes"  // ID: compare it with that -> Reply with Changes
	OpReset    Op = "reset"    // ID, Hard: end its commands, empty what surrounds the workspace, and with Hard the workspace -> Reply
	OpDestroy  Op = "destroy"  // ID: end its commands and remove it -> Reply
	OpInspect  Op = "inspect"  // ID -> Reply; not found when there is no such sandbox
	OpExec     Op = "exec"     // Exec: run a command -> Events, while Controls go the other way
)

// Part is a place in a sandbox that can be filled.
type Part string

// The parts.
const (
	PartWorkspace Part = "workspace"
	PartInput     Part = "input"
)

// Request is the first line of every stream.
type Request struct {
	Op      Op       `json:"op"`
	ID      string   `json:"id,omitempty"` // of the sandbox
	Part    Part     `json:"part,omitempty"`
	Hard    bool     `json:"hard,omitempty"`
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	Exec    *Exec    `json:"exec,omitempty"`
}

// Sandbox says what a sandbox is like, in the guest.
type Sandbox struct {
	Limits   limits.Request `json:"limits"`
	Network  bool           `json:"network"`  // it has the guest's own; otherwise none but its loopback
	Input    bool           `json:"input"`    // it has an input
	Exchange bool           `json:"exchange"` // the host has made /exchange/ID for it
}

// Exec is a command.
type Exec struct {
	// Argv and Env may hold bytes that are no UTF-8, which JSON strings cannot.
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"` // NAME=VALUE
	Dir  []byte   `json:"dir"` // absolute
	TTY  *Size    `json:"tty,omitempty"`
	// Files runs the guest program's own file operations instead: Argv are its arguments.
	Files bool `json:"files,omitempty"`
}

// Size is that of a terminal.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Control is what the backend says while a command runs. One field is set.
type Control struct {
	Signal int   `json:"signal,omitempty"` // for the command
	Group  bool  `json:"group,omitempty"`  // the signal is for all of its process group
	Resize *Size `json:"resize,omitempty"`
	Kill   bool  `json:"kill,omitempty"` // all that it started
	Shut   int   `json:"shut,omitempty"` // nobody reads this stream any more: 1 for stdout, 2 for stderr
}

// Event is what the guest says of a command. One field is set.
type Event struct {
	Started bool  `json:"started,omitempty"`
	Exit    *Exit `json:"exit,omitempty"` // the last one, once nothing of the command is left and all its output is under way
}

// Exit is the end of a command.
type Exit struct {
	Err        *contract.Error `json:"err,omitempty"` // it could not be run, for a reason that is not the command's
	NotStarted bool            `json:"not_started,omitempty"`
	Code       int             `json:"code,omitempty"`   // 126 or 127 with NotStarted
	Why        string          `json:"why,omitempty"`    // likewise
	Status     uint32          `json:"status,omitempty"` // wait status
	Killed     bool            `json:"killed,omitempty"` // all of it was killed from outside, and there is no status
	User       time.Duration   `json:"user,omitempty"`
	Sys        time.Duration   `json:"sys,omitempty"`
	MaxRSS     int64           `json:"max_rss,omitempty"` // bytes
	// What the kernel counted in the sandbox's cgroup: of the time of this command, and at most.
	OOMKills   uint64 `json:"oom_kills,omitempty"`
	PIDsHits   uint64 `json:"pids_hits,omitempty"`
	MemoryPeak uint64 `json:"memory_peak,omitempty"`
	PIDsPeak   uint64 `json:"pids_peak,omitempty"`
}

// Reply ends every operation but OpExec.
type Reply struct {
	Err     *contract.Error `json:"err,omitempty"`
	Changes []Change        `json:"changes,omitempty"`
	State   string          `json:"state,omitempty"` // of OpInspect: how many commands run
}

// Change is an [overlay.Change] whose path may be no UTF-8.
type Change struct {
	Path   []byte `json:"path"`
	Change overlay.Change
}

// AsError is err as it crosses the wire; one without a reason is internal. Nil stays nil.
func AsError(err error) *contract.Error {
	var e *contract.Error
	if err != nil && !errors.As(err, &e) {
		e = contract.Errorf(contract.ReasonInternal, "%w", err)
	}
	return e
}

// Hello is what the guest says first, behind [Magic] on its own line.
type Hello struct {
	Version int    `json:"version"`
	Arch    string `json:"arch"`
	User    string `json:"user"` // whose commands they are
	UID     int    `json:"uid"`
	Home    string `json:"home"`
	Boot    string `json:"boot"` // id of the guest's boot
	Kernel  string `json:"kernel"`
	// Limits says by what the guest would hold each limit.
	Limits map[limits.Limit]limits.How `json:"limits"`
	Size   Machine                     `json:"size"`
	// Err says why the program cannot work; the session ends after it.
	Err *contract.Error `json:"err,omitempty"`
}

// Machine is how large a VM is, as programs in it see it. A zero is unknown.
type Machine struct {
	Memory int64  `json:"memory"` // bytes
	CPUs   int    `json:"cpus"`
	Disk   int64  `json:"disk"`  // bytes of the file system that workspaces are on
	Files  uint64 `json:"files"` // hard limit of open files of each process
}

// Magic begins the line of [Hello]. What comes before it is the talk of login scripts.
const Magic = "hutch-lima-guest "

// maxNoise bounds what login scripts may print, and maxHello the line.
const (
	maxNoise = 64 << 10
	maxHello = 64 << 10
	maxLine  = 64 << 20 // of requests and replies: an argument list has at most 6 MiB, a list of changes is longer
)

// WriteHello writes the line of h.
func WriteHello(w io.Writer, h *Hello) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", Magic, b)
	return err
}

// ReadHello reads up to the end of the line of [Hello], and not a byte further. noise is what came before it.
func ReadHello(r io.Reader) (h *Hello, noise string, err error) {
	var line []byte
	var before strings.Builder
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(r, one); err != nil {
			return nil, before.String() + string(line), fmt.Errorf("the guest said nothing of hutch: %w", err)
		}
		if one[0] != '\n' {
			if line = append(line, one[0]); len(line) > maxHello {
				return nil, before.String(), errors.New("the guest's first words are no line")
			}
			continue
		}
		if at := bytes.Index(line, []byte(Magic)); at >= 0 {
			h = &Hello{}
			if err := json.Unmarshal(line[at+len(Magic):], h); err != nil {
				return nil, before.String(), fmt.Errorf("the guest's first words: %w", err)
			}
			return h, before.String(), nil
		}
		before.Write(append(line, '\n'))
		if line = line[:0]; before.Len() > maxNoise {
			return nil, before.String(), errors.New("the guest's login scripts print without end")
		}
	}
}

// Config is how both ends multiplex.
func Config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.MaxStreamWindowSize = 1 << 20
	c.AcceptBacklog = 4096
	c.EnableKeepAlive = true
	c.KeepAliveInterval = 30 * time.Second
	c.ConnectionWriteTimeout = 5 * time.Minute // an emulated machine may be that slow; ssh detects a dead one
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = 0 // what a command has not yet read must not be lost
	c.LogOutput = io.Discard
	return c
}

// Copy copies all that r has to w with a large buffer, and looks for no shortcuts, which streams do not have.
func Copy(w io.Writer, r io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 128<<10))
	return err
}

// Line is v as a line of JSON.
func Line(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil && len(b) >= maxLine {
		err = fmt.Errorf("a message of more than %d bytes", maxLine)
	}
	return append(b, '\n'), err
}

// Send writes v as a line of JSON, in one Write.
func Send(w io.Writer, v any) error {
	b, err := Line(v)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// Lines reads lines of JSON from r.
type Lines struct{ r *bufio.Reader }

// NewLines returns Lines that read from r. What follows a line can be read from Rest.
func NewLines(r io.Reader) *Lines { return &Lines{bufio.NewReader(r)} }

// Rest reads what follows the lines read so far.
func (l *Lines) Rest() io.Reader { return l.r }

// Next reads the next line into v.
func (l *Lines) Next(v any) error {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return json.Unmarshal(line, v)
		case !errors.Is(err, bufio.ErrBufferFull):
			if len(line) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		case len(line) > maxLine:
			return fmt.Errorf("a message of more than %d bytes", maxLine)
		}
	}
}
