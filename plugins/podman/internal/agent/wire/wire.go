// Package wire holds the messages between the plugin and the agent in a container, which a [supervise.Socket] carries.
//
// Every message has a fixed size and fixed fields; whatever does not fit is refused. Texts do not occur: the command
// itself, its environment and its arguments, is a memfd in the form that package microinit defines, and the agent
// passes it on without looking into it.
//
// The host connects and is greeted by [Hello]. It then sends requests and gets replies to them in no particular order;
// they are matched by the id that the host chose.
package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Version is the version of the protocol. A container lives longer than the
// plugin that made it, so the two may differ; then they do not talk.
const Version = 4

// RequestOp says what a request asks for.
type RequestOp uint32

// The requests. Each has an id of its own, but for Lifeline, whose id is 0.
const (
	// Exec starts an init, which reports to the host. Its descriptors are, in this order: stdin, stdout and stderr of the
	// command, and those of [supervise.Files]: status, exec, block.
	Exec RequestOp = 1 + iota
	// Await waits for the command Arg, as the container numbers it, whose init was killed; 0 if it has ended.
	Await
	// Lifeline ties the agent's life to the connection's.
	Lifeline
	// Dial connects to the port Arg of the container's loopback.
	Dial
	// Terminal makes a terminal, Arg being its rows and columns of 16 bits each.
	Terminal
	// Observe is an Exec with two descriptors more: a further filter of system calls, and the socket for its listener.
	Observe
)

// ExecFDs is the number of descriptors of an Exec, ObserveFDs that of an Observe.
const (
	ExecFDs    = 6
	ObserveFDs = ExecFDs + 2
)

// InitFD is the descriptor of the init that is started with it. That of an Observe has two more: the filter, and the
// socket for its listener.
const InitFD = microinit.BlockFD + 1

// Request is a message from the host.
type Request struct {
	Op  RequestOp
	ID  uint64
	Arg uint32
}

// RequestSize is the size of every request in bytes.
const RequestSize = 16

// Append appends the encoded request to b.
func (r Request) Append(b []byte) []byte {
	b, _ = binary.Append(b, binary.LittleEndian, r) // which has a fixed size
	return b
}

// ParseRequest decodes a request that came with fds descriptors.
func ParseRequest(b []byte, fds int) (Request, error) {
	var r Request
	if n, err := binary.Decode(b, binary.LittleEndian, &r); err != nil || n != len(b) {
		return Request{}, fmt.Errorf("a request has %d bytes, not %d", len(b), RequestSize)
	}
	want, arg := 0, uint32(0)
	switch r.Op {
	case Exec:
		want = ExecFDs
	case Observe:
		want = ObserveFDs
	case Await:
		arg = maxPID
	case Dial:
		if arg = 65535; r.Arg == 0 {
			return Request{}, fmt.Errorf("there is no port 0")
		}
	case Terminal:
		arg = ^uint32(0)
	case Lifeline:
	default:
		return Request{}, fmt.Errorf("there is no request %d", uint32(r.Op))
	}
	if (r.ID == 0) != (r.Op == Lifeline) || r.Arg > arg || fds != want {
		return Request{}, fmt.Errorf("request %d is malformed: id %d, argument %d, %d descriptors", r.Op, r.ID, r.Arg, fds)
	}
	return r, nil
}

// ReplyOp is the kind of a reply.
type ReplyOp uint32

// The replies.
const (
	// Hello is the first message on a connection. Value is [Version].
	Hello ReplyOp = 1 + iota
	// Failed answers Exec, Await and Terminal when they could not be done. Value is a [Failure], Errno the errno that
	// goes with it.
	Failed
	// Ended answers Exec when the init has ended, and Await when the command has. Value is the wait status.
	Ended
	// Tied answers [Lifeline].
	Tied
	// Dialled answers [Dial], with the connection, which may still be being made.
	Dialled
	// Refused answers [Dial] when there is no connection. Errno says why.
	Refused
	// Opened answers [Terminal], with its controlling end and its other end.
	Opened
)

// Failure says what could not be done.
type Failure uint32

// The failures.
const (
	NoProcess   Failure = 1 + iota // no process could be made
	NoFiles                        // no descriptors are left in the agent
	NoTerminal                     // no terminal could be made
	Lost                           // something in the container killed what watched the command
	lastFailure = Lost
)

func (f Failure) String() string {
	switch f {
	case NoProcess:
		return "start a process"
	case NoFiles:
		return "take the command's streams"
	case NoTerminal:
		return "make a terminal"
	case Lost:
		return "keep watching the command"
	}
	return fmt.Sprintf("failure %d", uint32(f))
}

// Reply is a message from the agent.
type Reply struct {
	Op     ReplyOp
	ID     uint64
	Value  uint32
	Errno  uint32
	User   uint64 // microseconds of processor time, of the command and its descendants
	Sys    uint64
	MaxRSS uint64 // KiB, of the largest of them
}

// ReplySize is the size of every reply in bytes.
const ReplySize = 44

// Append appends the encoded reply to b.
func (r Reply) Append(b []byte) []byte {
	b, _ = binary.Append(b, binary.LittleEndian, r) // which has a fixed size
	return b
}

const (
	maxPID   = 1 << 22 // the kernel's own bound
	maxErrno = 4095
	maxTime  = 1e6 * 3600 * 24 * 365 * 100 // µs: a hundred processor years
	maxRSS   = 1 << 42                     // KiB
)

// ParseReply decodes a reply that came with fds descriptors.
func ParseReply(b []byte, fds int) (Reply, error) {
	var r Reply
	if n, err := binary.Decode(b, binary.LittleEndian, &r); err != nil || n != len(b) {
		return Reply{}, fmt.Errorf("a reply has %d bytes, not %d", len(b), ReplySize)
	}
	max := Reply{Op: r.Op, ID: ^uint64(0)}
	want := 0
	switch r.Op {
	case Hello:
		max.ID, max.Value = 0, ^uint32(0)
	case Tied:
		max.ID = 0
	case Dialled:
		want = 1
	case Opened:
		want = 2
	case Refused:
		max.Errno = maxErrno
	case Failed:
		max.Value, max.Errno = uint32(lastFailure), maxErrno
		if r.Value == 0 {
			return Reply{}, fmt.Errorf("there is no failure 0")
		}
	case Ended:
		max.Value, max.User, max.Sys, max.MaxRSS = 0xffff, maxTime, maxTime, maxRSS
	default:
		return Reply{}, fmt.Errorf("there is no reply %d", uint32(r.Op))
	}
	if (r.ID == 0) != (max.ID == 0) || r.Value > max.Value || r.Errno > max.Errno ||
		r.User > max.User || r.Sys > max.Sys || r.MaxRSS > max.MaxRSS || fds != want {
		return Reply{}, fmt.Errorf("reply %d is malformed: %+v with %d descriptors", r.Op, r, fds)
	}
	return r, nil
}
