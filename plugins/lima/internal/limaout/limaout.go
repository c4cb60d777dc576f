// Package limaout reads what limactl prints.
package limaout

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Log is a writer that takes limactl's log apart: one JSON object on a line, and now and then something else. Call End
// behind the last line. It is not safe for concurrent use.
type Log struct {
	// Tell is called for each line, if it is set. The level is empty for what is no entry of a log.
	Tell func(level, msg string)
	// Fatal is the last entry of level fatal, and Last the last line of all.
	Fatal, Last string

	rest []byte
}

// maxLogLine bounds a line that never ends.
const maxLogLine = 64 << 10

// Write implements [io.Writer]. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok && len(l.rest) < maxLogLine {
			return len(p), nil
		}
		l.rest = rest
		l.line(line)
	}
}

// End takes what came without the end of a line.
func (l *Log) End() {
	if len(l.rest) > 0 {
		l.line(l.rest)
	}
}

func (l *Log) line(b []byte) {
	text := strings.TrimSpace(string(b))
	if text == "" {
		return
	}
	var entry struct{ Level, Msg string }
	if json.Unmarshal(b, &entry) != nil || entry.Msg == "" {
		entry.Level, entry.Msg = "", text
	}
	l.Last = entry.Msg
	if entry.Level == "fatal" {
		l.Fatal = entry.Msg
	}
	if l.Tell != nil {
		l.Tell(entry.Level, entry.Msg)
	}
}

// Instance is what limactl list says of a VM.
type Instance struct {
	Name          string `json:"name"`
	Hostname      string `json:"hostname"`
	Status        string `json:"status"`
	Dir           string `json:"dir"`
	Arch          string `json:"arch"`
	VMType        string `json:"vmType"`
	CPUs          int    `json:"cpus"`
	Memory        int64  `json:"memory"`
	SSHConfigFile string `json:"sshConfigFile"`
	Config        struct {
		Mounts []struct {
			Location   string `json:"location"`
			MountPoint string `json:"mountPoint"`
			Writable   bool   `json:"writable"`
		} `json:"mounts"`
		User struct {
			Name string `json:"name"`
		} `json:"user"`
	} `json:"config"`
	Errors []string `json:"errors"`
}

// The states of a VM that matter here. Whatever else there is counts as broken.
const (
	StatusRunning = "Running" // its processes exist; it may still boot
	StatusStopped = "Stopped"
)

// ParseList reads what limactl list --json prints: an object on each line.
func ParseList(r io.Reader) (all []*Instance, err error) {
	in := json.NewDecoder(bufio.NewReader(r))
	for {
		i := &Instance{}
		err := in.Decode(i)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what limactl list prints: %w", err)
		}
		all = append(all, i)
	}
}
