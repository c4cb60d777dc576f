package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	EventBegin          EventType = "run.begin"       // the first of every run's chain, and its entry in the audit chain
	EventEnd            EventType = "run.end"         // the last of every finished run's chain, and its entry in the audit chain
	EventRemoved        EventType = "run.removed"     // in the audit chain: the run was deleted on purpose
	EventSandboxBegin   EventType = "sandbox.begin"   // the first of every persistent sandbox's chain, and its entry in the audit chain
	EventSandboxRemoved EventType = "sandbox.removed" // in the audit chain: the sandbox was removed on purpose
	EventSandboxHead    EventType = "sandbox.head"    // in the audit chain: how far a persistent sandbox's chain goes, after something was changed by hand
	EventRepaired       EventType = "repaired"        // a torn tail was set aside; the data says where and how long it was
	EventDamaged        EventType = "damaged"         // the writer found the event before this one to be invalid and went on after it
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
	EventNetworkDenied  EventType = "network.denied"   // the command asked for a destination that no rule allows, or that a rule denies
	EventNetworkAllowed EventType = "network.allowed"  // the command used a destination of its filtered network
	EventChanges        EventType = "workspace.change" // what differs in the workspace
	EventOutputs        EventType = "outputs"          // files were collected
	EventSandboxReset   EventType = "sandbox.reset"    // in a persistent sandbox's chain: it was recreated
	EventSandboxStop    EventType = "sandbox.stop"     // in a persistent sandbox's chain: it was stopped
	EventSandboxStart   EventType = "sandbox.start"    // in a persistent sandbox's chain: it was started again
	EventSandboxRecord  EventType = "sandbox.record"   // in a persistent sandbox's chain: a file of its record is about to be rewritten
	EventSandboxCopy    EventType = "sandbox.copy"     // in a persistent sandbox's chain: files were put in or taken out by hand
	EventSandboxWrite   EventType = "sandbox.write"    // in a persistent sandbox's chain: a file was written or edited by hand
	EventSandboxDelete  EventType = "sandbox.delete"   // in a persistent sandbox's chain: a file or directory was removed by hand
	EventSandboxApply   EventType = "sandbox.apply"    // in a persistent sandbox's chain: changes were brought back to its project
	EventSandboxUndo    EventType = "sandbox.undo"     // in a persistent sandbox's chain: an apply was taken back
)

// The types that a loop of a model writes about itself.
const (
	EventModelCall EventType = "model_call" // a model was asked and answered, or failed to
	EventToolCall  EventType = "tool_call"  // a tool was called as the model asked
	EventAttempt   EventType = "attempt"    // what the model made was run
	EventState     EventType = "state"      // the loop goes on to another state
	EventResume    EventType = "resume"     // another process goes on with the loop, whose host died
)

// Event is one line of a chain.
type Event struct {
	Schema string          `json:"schema"`
	Seq    uint64          `json:"seq"` // from 1, without gaps
	Time   time.Time       `json:"time"`
	Run    string          `json:"run"` // whose chain it is: the id of a run, or of a persistent sandbox
	Type   EventType       `json:"type"`
	Parent string          `json:"parent,omitempty"` // in the first event: the run that this one continues
	Data   json.RawMessage `json:"data,omitempty"`
	Files  []FileRef       `json:"files,omitempty"`
	Prev   string          `json:"prev"`           // hash of the event before; zeros in the first
	Hash   string          `json:"hash,omitempty"` // sha256 in hex of the line before this member, closed with a brace
}

// FileRef points at a file of the run's directory.
type FileRef struct {
	Path   string `json:"path"` // below the run's directory, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`         // hex
	Mode   string `json:"mode,omitempty"` // permission bits in octal, where they matter
}

// The hash covers the bytes of the line as they stand, so checking it needs no canonical form of JSON: a line is the
// JSON of the event without its hash, with the hash spliced in before the last brace.

const (
	hashMark    = `,"hash":"`
	hashHex     = 2 * sha256.Size
	hashSuffix  = len(hashMark) + hashHex + len(`"}`)
	maxLine     = 4 << 20   // longer lines are not events
	filesInLine = 512 << 10 // bytes of file references after which an event goes on in another one
)

// noPrev stands for the hash of the event before the first.
var noPrev = strings.Repeat("0", hashHex)

// encodeEvent returns the line of e, newline included, and sets its hash. Control characters cannot occur in a line,
// because the encoder escapes them inside strings and compacts what is outside.
func encodeEvent(e *Event) ([]byte, error) {
	e.Schema, e.Hash = EventSchema, ""
	e.Time = e.Time.UTC()
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	e.Hash = sumHex(body)
	line := spliceHash(body, e.Hash)
	if len(line) > maxLine {
		return nil, fmt.Errorf("event %s of %d bytes: at most %d are allowed", e.Type, len(line), maxLine)
	}
	return line, nil
}

// spliceHash makes a line of an object and its hash, newline included.
func spliceHash(body []byte, hash string) []byte {
	line := make([]byte, 0, len(body)+hashSuffix)
	line = append(line, body[:len(body)-1]...)
	line = append(line, hashMark...)
	line = append(line, hash...)
	return append(line, '"', '}', '\n')
}

// cutHash is the reverse, for a line without its newline: the object as bytes up to its last brace, and the hash.
func cutHash(line []byte) (open []byte, hash string, ok bool) {
	n := len(line) - hashSuffix
	if n < 1 || !bytes.HasPrefix(line[n:], []byte(hashMark)) || !bytes.HasSuffix(line, []byte(`"}`)) {
		return nil, "", false
	}
	return line[:n], string(line[n+len(hashMark) : n+len(hashMark)+hashHex]), true
}

// decoded is what one line of a chain holds, valid or not.
type decoded struct {
	event    Event
	stored   string // the hash that the line claims; empty when it has none
	computed string // the hash of what it holds
	raw      string // the hash of the line as it is, which a [EventDamaged] event after it names
	bad      error  // why it is not a valid event
}

// decodeEvent checks one line, given without its newline.
func decodeEvent(line []byte) (d decoded) {
	raw := sha256.Sum256(line)
	d.raw = hex.EncodeToString(raw[:])
	if i := bytes.IndexFunc(line, func(r rune) bool { return r < ' ' }); i >= 0 {
		d.bad = fmt.Errorf("control character %#02x at byte %d", line[i], i)
		return d
	}
	body, stored, ok := cutHash(line)
	if !ok {
		d.bad = errors.New("it does not end with a hash")
		return d
	}
	d.stored = stored
	h := sha256.New()
	h.Write(body)
	h.Write([]byte{'}'})
	d.computed = hex.EncodeToString(h.Sum(nil))
	// The event is read even when the hash does not fit: its number tells where we are.
	if err := json.Unmarshal(line, &d.event); err != nil {
		d.bad = fmt.Errorf("it is not JSON: %w", err)
		d.event = Event{}
		return d
	}
	switch {
	case d.stored != d.computed:
		d.bad = errors.New("its content does not fit its hash")
	case d.event.Schema != EventSchema:
		d.bad = fmt.Errorf("schema %.40q is not %s", d.event.Schema, EventSchema)
	case d.event.Hash != d.stored:
		d.bad = errors.New("it has two hashes")
	}
	return d
}

// marshalData turns an event's data into JSON within its bounds; nil stays nil.
func marshalData(typ EventType, data any) (json.RawMessage, error) {
	if data == nil {
		return nil, nil
	}
	b, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", typ, err)
	}
	if len(b) > MaxEventData {
		return nil, fmt.Errorf("event %s: data of %d bytes, at most %d are allowed (put it into a file and point at that)", typ, len(b), MaxEventData)
	}
	return b, nil
}

// splitFiles cuts a long list of files into pieces of which each fits into one event.
func splitFiles(files []FileRef) [][]FileRef {
	var pieces [][]FileRef
	start, size := 0, 0
	for i, f := range files {
		// A byte of a path takes at most six in JSON.
		n := 6*len(f.Path) + 256
		if size+n > filesInLine && i > start {
			pieces = append(pieces, files[start:i])
			start, size = i, 0
		}
		size += n
	}
	return append(pieces, files[start:])
}
