// Package remote runs commands at the far end of a byte stream, such as an ssh session to a virtual machine: with true
// ends of their streams, signals, window sizes, and what they used. One stream carries any number of commands.
//
// Both ends speak yamux over it. The client opens all streams ([Client]); each begins with a request as a line of JSON,
// which is the program's own. On that of a command follow [Event] lines from the far end and [Control] lines to it. The
// three streams that are opened right after it are the command's stdin, stdout and stderr, and hold nothing else, so
// nothing of a command ever passes a shell. The end of the connection is the end of its commands: the far end ([Call])
// kills them.
package remote

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/hutch-run/hutch/sdk/contract"
)

// Exec is a command.
type Exec struct {
	// Argv and Env may hold bytes that are no UTF-8, which JSON strings cannot.
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"` // NAME=VALUE
	Dir  []byte   `json:"dir"` // absolute
	TTY  *Size    `json:"tty,omitempty"`
}

// Size is that of a terminal.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Control is what the client says while a command runs. One field is set.
type Control struct {
	Signal int   `json:"signal,omitempty"` // for the command
	Group  bool  `json:"group,omitempty"`  // the signal is for all of its process group
	Resize *Size `json:"resize,omitempty"`
	Kill   bool  `json:"kill,omitempty"` // all that it started
	Shut   int   `json:"shut,omitempty"` // nobody reads this stream any more: 1 for stdout, 2 for stderr
}

// Event is what the far end says of a command. One field is set.
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
	// What the kernel counted in the command's cgroup: of the time of this command, and at most.
	OOMKills   uint64 `json:"oom_kills,omitempty"`
	PIDsHits   uint64 `json:"pids_hits,omitempty"`
	MemoryPeak uint64 `json:"memory_peak,omitempty"`
	PIDsPeak   uint64 `json:"pids_peak,omitempty"`
	DiskFull   bool   `json:"disk_full,omitempty"` // the sandbox's file system had no room when the command had ended
}

// maxLine bounds a line: an argument list has at most 6 MiB, a list of changes is longer.
const maxLine = 64 << 20

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

// copyAll copies all that r has to w with a large buffer, and looks for no shortcuts, which streams do not have.
func copyAll(w io.Writer, r io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 128<<10))
	return err
}

// encode returns v as a line of JSON.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil && len(b) >= maxLine {
		err = fmt.Errorf("a message of more than %d bytes", maxLine)
	}
	return append(b, '\n'), err
}

// Send writes v as a line of JSON, in one Write.
func Send(w io.Writer, v any) error {
	b, err := encode(v)
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
