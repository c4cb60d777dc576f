package store

import (
	"encoding/json"
	"time"
)

// EventSchema is the schema of every event.
const EventSchema = "hutch.event/v1"

// MaxEventData bounds the JSON of one event's data, in bytes.
const MaxEventData = 64 << 10

// EventType says what an event is about: lower-case words joined by dots. Callers may use types of their own.
type EventType string

// The types that the store itself writes.
const (
	EventBegin    EventType = "run.begin"   // the first of every run's chain, and its entry in the audit chain
	EventEnd      EventType = "run.end"     // the last of every finished run's chain, and its entry in the audit chain
	EventRemoved  EventType = "run.removed" // in the audit chain: the run was deleted on purpose
	EventRepaired EventType = "repaired"    // a torn tail was set aside; the data says where and how long it was
	EventDamaged  EventType = "damaged"     // the writer found the event before this one to be invalid and went on after it
)

// The types that a run writes about itself.
const (
	EventPlan           EventType = "plan"             // backends looked at, and why each was taken or skipped
	EventCode           EventType = "code"             // declared files were written
	EventSandboxCreate  EventType = "sandbox.create"   // about to make a sandbox
	EventSandboxReady   EventType = "sandbox.ready"    // made, with how each limit is held
	EventSandboxDestroy EventType = "sandbox.destroy"  // unmade
	EventDependencies   EventType = "dependencies"     // installed, or taken from the cache
	EventExecStart      EventType = "exec.start"       // a command began
	EventExecEnd        EventType = "exec.end"         // a command ended, with its cause
	EventChanges        EventType = "workspace.change" // what differs in the workspace
	EventOutputs        EventType = "outputs"          // files were collected
)

// Event is one line of a chain.
type Event struct {
	Schema string          `json:"schema"`
	Seq    uint64          `json:"seq"` // from 1, without gaps
	Time   time.Time       `json:"time"`
	Run    string          `json:"run"`
	Type   EventType       `json:"type"`
	Parent string          `json:"parent,omitempty"` // in the first event: the run that this one continues
	Data   json.RawMessage `json:"data,omitempty"`
	Files  []FileRef       `json:"files,omitempty"`
	Prev   string          `json:"prev"` // hash of the event before; zeros in the first
	Hash   string          `json:"hash"` // sha256 in hex of the line up to here, closed with a brace
}

// FileRef points at a file of the run's directory.
type FileRef struct {
	Path   string `json:"path"` // below the run's directory, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`         // hex
	Mode   string `json:"mode,omitempty"` // permission bits in octal, where they matter
}
