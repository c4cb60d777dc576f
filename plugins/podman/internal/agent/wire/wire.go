// Package wire holds the messages between the plugin and the agent in a container,
// and carries them, with file descriptors, over a SOCK_SEQPACKET unix socket.
//
// Every message has a fixed size and fixed fields; whatever does not fit is refused.
// Texts do not occur: the command itself, its environment and its arguments, is a
// memfd in the form that package microinit defines, and the agent passes it on
// without looking into it.
//
// The host connects and is greeted by [Hello]. It then sends requests and gets
// replies to them in no particular order; they are told apart by the id that the
// host chose for the command. The last reply about a command is [Failed] or
// [Exited]. The end of the connection is the end of its commands.
package wire

import (
	"encoding/binary"
	"fmt"
)

// Version is the version of the protocol. A container lives longer than the
// plugin that made it, so the two may differ; then they do not talk.
const Version = 2

// RequestOp says what a request asks for.
type RequestOp uint32

// The requests.
const (
	// Exec starts a command. Its descriptors are, in this order: the memfd with the
	// command, stdin, stdout, stderr. With OnTerminal there is only the memfd, Arg
	// is the size of the terminal, and the reply [Terminal] comes first.
	Exec RequestOp = 1 + iota
	// Signal sends the signal Arg to the command, with ToGroup to its process group.
	Signal
	// Kill kills the command with all its descendants.
	Kill
	// Lifeline ties the agent's life to the connection's. ID is 0.
	Lifeline
	// Dial connects to the port Arg of the container's loopback. ID is one that no command has.
	Dial
)

// The flags of requests.
const (
	OnTerminal uint32 = 1 // of Exec
	ToGroup    uint32 = 1 // of Signal
)

// MaxFDs is the most descriptors that come with one message.
const MaxFDs = 4

// Request is a message from the host.
type Request struct {
	Op    RequestOp
	Flags uint32
	ID    uint64
	Arg   uint32
}

// RequestSize is the size of every request in bytes.
const RequestSize = 20

// Append appends the encoded request to b.
func (r Request) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Op))
	b = binary.LittleEndian.AppendUint32(b, r.Flags)
	b = binary.LittleEndian.AppendUint64(b, r.ID)
	return binary.LittleEndian.AppendUint32(b, r.Arg)
}

// ParseRequest decodes a request that came with fds descriptors.
func ParseRequest(b []byte, fds int) (Request, error) {
	if len(b) != RequestSize {
		return Request{}, fmt.Errorf("a request has %d bytes, not %d", len(b), RequestSize)
	}
	r := Request{
		Op: RequestOp(binary.LittleEndian.Uint32(b)), Flags: binary.LittleEndian.Uint32(b[4:]),
		ID: binary.LittleEndian.Uint64(b[8:]), Arg: binary.LittleEndian.Uint32(b[16:]),
	}
	want, flags, arg := 0, uint32(0), uint32(0)
	switch r.Op {
	case Exec:
		flags, want = OnTerminal, 4
		if r.Flags == OnTerminal {
			want, arg = 1, ^uint32(0)
		}
	case Signal:
		flags, arg = ToGroup, 64
		if r.Arg == 0 {
			return Request{}, fmt.Errorf("there is no signal 0")
		}
	case Dial:
		if arg = 65535; r.Arg == 0 {
			return Request{}, fmt.Errorf("there is no port 0")
		}
	case Kill, Lifeline:
	default:
		return Request{}, fmt.Errorf("there is no request %d", uint32(r.Op))
	}
	if (r.ID == 0) != (r.Op == Lifeline) || r.Flags&^flags != 0 || r.Arg > arg || fds != want {
		return Request{}, fmt.Errorf("request %d is malformed: id %d, flags %#x, argument %d, %d descriptors", r.Op, r.ID, r.Flags, r.Arg, fds)
	}
	return r, nil
}

// ParseExec decodes an [Exec] whose descriptors were lost on the way.
func ParseExec(b []byte) (Request, error) {
	r, err := ParseRequest(b, 4)
	if err != nil {
		r, err = ParseRequest(b, 1)
	}
	return r, err
}

// ReplyOp says what a reply tells.
type ReplyOp uint32

// The replies.
const (
	// Hello is the first message on a connection. Value is [Version].
	Hello ReplyOp = 1 + iota
	// Terminal brings the controlling end of a command's terminal.
	Terminal
	// Started says that the command has been executed. Value is its process id in the
	// container.
	Started
	// Failed says that the command never was executed. Value is a [Failure], Errno the
	// errno that goes with it.
	Failed
	// Exited says how the command ended, and that nothing of its tree is left. Value is
	// its wait status.
	Exited
	// Tied answers [Lifeline].
	Tied
	// Dialled answers [Dial], with the connection, which may still be being made.
	Dialled
	// Refused answers [Dial] when there is no connection. Errno says why.
	Refused
)

// Failure says what kept a command from being executed.
type Failure uint32

// The failures.
const (
	NoExec      Failure = 1 + iota // execve refused
	NoDir                          // the working directory cannot be entered
	NoLimit                        // a resource limit cannot be set
	NoProcess                      // no process could be made
	NoFiles                        // no descriptors are left in the agent
	NoTerminal                     // no terminal could be made
	NoCommand                      // the memfd holds no command
	Lost                           // something in the container killed what watched the command
	lastFailure = Lost
)

func (f Failure) String() string {
	switch f {
	case NoExec:
		return "execute the command"
	case NoDir:
		return "enter the command's directory"
	case NoLimit:
		return "set the command's limits"
	case NoProcess:
		return "start a process"
	case NoFiles:
		return "take the command's streams"
	case NoTerminal:
		return "make a terminal"
	case NoCommand:
		return "read the command"
	case Lost:
		return "keep watching the command"
	}
	return fmt.Sprintf("failure %d", uint32(f))
}

// LeftBehind is the flag of [Exited] that says that something outlived the command
// and was killed.
const LeftBehind uint32 = 1

// Reply is a message from the agent.
type Reply struct {
	Op     ReplyOp
	Flags  uint32
	ID     uint64
	Value  uint32
	Errno  uint32
	User   uint64 // microseconds of processor time, of the command and its descendants
	Sys    uint64
	MaxRSS uint64 // KiB, of the largest of them
}

// ReplySize is the size of every reply in bytes.
const ReplySize = 48

// Append appends the encoded reply to b.
func (r Reply) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Op))
	b = binary.LittleEndian.AppendUint32(b, r.Flags)
	b = binary.LittleEndian.AppendUint64(b, r.ID)
	b = binary.LittleEndian.AppendUint32(b, r.Value)
	b = binary.LittleEndian.AppendUint32(b, r.Errno)
	b = binary.LittleEndian.AppendUint64(b, r.User)
	b = binary.LittleEndian.AppendUint64(b, r.Sys)
	return binary.LittleEndian.AppendUint64(b, r.MaxRSS)
}

const (
	maxPID   = 1 << 22 // the kernel's own bound
	maxErrno = 4095
	maxTime  = 1e6 * 3600 * 24 * 365 * 100 // µs: a hundred processor years
	maxRSS   = 1 << 42                     // KiB
)

// ParseReply decodes a reply that came with fds descriptors.
func ParseReply(b []byte, fds int) (Reply, error) {
	if len(b) != ReplySize {
		return Reply{}, fmt.Errorf("a reply has %d bytes, not %d", len(b), ReplySize)
	}
	r := Reply{
		Op: ReplyOp(binary.LittleEndian.Uint32(b)), Flags: binary.LittleEndian.Uint32(b[4:]),
		ID: binary.LittleEndian.Uint64(b[8:]), Value: binary.LittleEndian.Uint32(b[16:]), Errno: binary.LittleEndian.Uint32(b[20:]),
		User: binary.LittleEndian.Uint64(b[24:]), Sys: binary.LittleEndian.Uint64(b[32:]), MaxRSS: binary.LittleEndian.Uint64(b[40:]),
	}
	max := Reply{Op: r.Op, ID: ^uint64(0)}
	want := 0
	switch r.Op {
	case Hello:
		max.ID, max.Value = 0, ^uint32(0)
	case Tied:
		max.ID = 0
	case Terminal, Dialled:
		want = 1
	case Refused:
		max.Errno = maxErrno
	case Started:
		max.Value = maxPID
	case Failed:
		max.Value, max.Errno = uint32(lastFailure), maxErrno
		if r.Value == 0 {
			return Reply{}, fmt.Errorf("there is no failure 0")
		}
	case Exited:
		max.Flags, max.Value, max.User, max.Sys, max.MaxRSS = LeftBehind, 0xffff, maxTime, maxTime, maxRSS
	default:
		return Reply{}, fmt.Errorf("there is no reply %d", uint32(r.Op))
	}
	if (r.ID == 0) != (max.ID == 0) || r.Flags > max.Flags || r.Value > max.Value || r.Errno > max.Errno ||
		r.User > max.User || r.Sys > max.Sys || r.MaxRSS > max.MaxRSS || fds != want {
		return Reply{}, fmt.Errorf("reply %d is malformed: %+v with %d descriptors", r.Op, r, fds)
	}
	return r, nil
}
