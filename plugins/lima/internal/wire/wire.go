// Package wire is what the Lima backend and its program in the guest say to each other.
//
// The backend starts that program with the VM's ssh, one session for all it does. The program prints one line, [Hello],
// and from then on both ends speak as package remote says: [Request] is what each stream begins with. What follows
// depends on its Op; where that is no command, the last thing the guest says on the stream is a [remote.Reply].
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
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
	// ID, Hard: end its commands, empty what surrounds the workspace, and with Hard the workspace -> Reply
	OpReset   Op = "reset"
	OpDestroy Op = "destroy" // ID: end its commands and remove it -> Reply
	OpInspect Op = "inspect" // ID -> Reply; not found when there is no such sandbox
	OpExec    Op = "exec"    // Exec: run a command -> Events, while Controls go the other way
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

	Exec *remote.Exec `json:"exec,omitempty"`
	// Files runs the guest program's own file operations instead: Argv are its arguments.
	Files bool `json:"files,omitempty"`
}

// Sandbox says what a sandbox is like, in the guest.
type Sandbox struct {
	Limits   limits.Request `json:"limits"`
	Network  bool           `json:"network"`  // it has the guest's own; otherwise none but its loopback
	Input    bool           `json:"input"`    // it has an input
	Exchange bool           `json:"exchange"` // the host has made /exchange/ID for it
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
