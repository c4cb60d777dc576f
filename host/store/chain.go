package store

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// chain appends to one event chain. Every append is one write under an exclusive lock of the file, and begins by
// looking whether another process appended meanwhile, so any number of writers make one chain.
type chain struct {
	path string
	now  func() time.Time

	mu   sync.Mutex // for goroutines; flock is for other descriptors
	f    *os.File
	size int64  // of the file as we know it
	seq  uint64 // of the last event
	head string // its hash

	notes []Event // what catching up found and no append has recorded yet
}

// newChain returns the chain at path, which the first append opens, or makes when it is missing.
func newChain(path string, now func() time.Time) *chain { return &chain{path: path, now: now} }

func (c *chain) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.f == nil {
		return nil
	}
	f := c.f
	c.f = nil
	return f.Close()
}

// sync forces what was appended to the disk.
func (c *chain) sync() error {
	if err := c.f.Sync(); err != nil {
		return diskError("sync", c.path, err)
	}
	return nil
}

// seal makes the file of a finished chain read-only, which says that the audit chain knows its end.
func (c *chain) seal() error {
	if err := c.f.Chmod(0o400); err != nil {
		return diskError("seal", c.path, err)
	}
	return nil
}

// append adds events and returns the state of the chain after them. It fills in number, time (where it is zero) and
// hashes. Either all of them are in the chain or, with an error, none; what was there before stays in any case.
func (c *chain) append(events ...Event) (seq uint64, head string, err error) {
	return c.appendThen(nil, events...)
}

// appendThen appends, and then calls then, unless it is nil, while nobody else can append. Its error does not take the
// events back.
func (c *chain) appendThen(then func() error, events ...Event) (seq uint64, head string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.f == nil {
		const flags = os.O_RDWR | os.O_APPEND | os.O_CREATE | syscall.O_NOFOLLOW
		if c.f, err = os.OpenFile(c.path, flags, 0o600); err != nil {
			c.f = nil
			return 0, "", diskError("open", c.path, err)
		}
		c.size = -1
	}
	if err := lockFile(c.f, unix.LOCK_EX); err != nil {
		return 0, "", diskError("lock", c.path, err)
	}
	defer unlockFile(c.f)

	if err := c.catchUp(events[0].Run); err != nil {
		return 0, "", err
	}
	var buf bytes.Buffer
	seq, head = c.seq, c.head
	for _, e := range slices.Concat(c.notes, events) {
		seq++
		e.Seq, e.Prev = seq, head
		if e.Time.IsZero() {
			e.Time = c.now()
		}
		line, err := encodeEvent(&e)
		if err != nil {
			return 0, "", err
		}
		buf.Write(line)
		head = e.Hash
	}
	if _, err := c.f.Write(buf.Bytes()); err != nil {
		// Take back what was written of it; were that to fail, the next writer would find a torn tail.
		_ = c.f.Truncate(c.size)
		return 0, "", diskError("append to", c.path, err)
	}
	c.size += int64(buf.Len())
	c.seq, c.head, c.notes = seq, head, nil
	if then != nil {
		err = then()
	}
	return seq, head, err
}

// catchUp brings c up to the file, which is locked. It sets a torn tail aside. What must be said about that is in
// c.notes.
func (c *chain) catchUp(run string) error {
	fi, err := c.f.Stat()
	if err != nil {
		return diskError("look at", c.path, err)
	}
	size := fi.Size()
	switch {
	case size == c.size:
		return nil
	case size < c.size:
		c.size = size // Somebody cut events off which we know. Go on from what we know: the gap then shows for ever.
		return nil
	}
	last, torn, err := lastLine(c.f, size)
	if err != nil {
		return diskError("read", c.path, err)
	}
	if torn > 0 {
		if err := c.setAside(run, size-torn, torn); err != nil {
			return err
		}
		size -= torn
	}
	c.size, c.seq, c.head = size, last.event.Seq, cmp.Or(last.event.Hash, noPrev)
	if last.bad != nil {
		// A record that stops would be worse than one with a damaged line, which Verify reports.
		end, err := readLines(io.NewSectionReader(c.f, 0, size), func(uint64, decoded) error { return nil })
		if err != nil {
			return diskError("read", c.path, err)
		}
		c.seq = end.lines
	}
	return nil
}

// tornMark begins what follows the name of a chain in that of a file with its torn tail.
const tornMark = ".torn-"

// setAside moves the torn bytes from offset on to their own file and cuts them off the chain.
func (c *chain) setAside(run string, offset, n int64) error {
	torn := make([]byte, min(n, maxLine))
	if _, err := c.f.ReadAt(torn, offset); err != nil && !errors.Is(err, io.EOF) {
		return diskError("read", c.path, err)
	}
	aside := fmt.Sprintf("%s%s%d", c.path, tornMark, offset)
	if err := writeAtomic(aside, torn, true); err != nil {
		return err
	}
	if err := c.f.Truncate(offset); err != nil {
		return diskError("cut the torn tail of", c.path, err)
	}
	name := filepath.Base(aside)
	data, err := marshal(map[string]any{"offset": offset, "bytes": n, "kept": len(torn), "aside": name})
	c.notes = append(c.notes, Event{Run: run, Type: EventRepaired, Data: data, Files: []FileRef{refBytes(name, torn)}})
	return err
}

// lastLine decodes the last complete line of the first size bytes of f, which is zero where nothing is whole, and says
// how many bytes follow that are not a complete line. Zero bytes after the last newline, which a crash of the machine
// can leave, are such bytes too.
func lastLine(f io.ReaderAt, size int64) (last decoded, torn int64, err error) {
	end, err := lastNewline(f, size)
	if err != nil || end < 0 {
		return decoded{}, size, err
	}
	start, err := lastNewline(f, end)
	if err != nil {
		return decoded{}, 0, err
	}
	_, err = readLines(io.NewSectionReader(f, start+1, end-start), func(_ uint64, d decoded) error {
		last = d
		return nil
	})
	return last, size - end - 1, err
}

// lastNewline returns the offset of the last newline before end, or -1.
func lastNewline(f io.ReaderAt, end int64) (int64, error) {
	buf := make([]byte, 4<<10)
	for end > 0 {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i), nil
		}
		end -= n
	}
	return -1, nil
}

// chainEnd is what is known after the last line.
type chainEnd struct {
	lines uint64
	torn  int64 // bytes after the last complete line
}

// openChain opens a chain for reading, as it is at this moment.
func openChain(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, diskError("read", path, err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, nil, diskError("read", path, err)
	}
	return f, fi, nil
}

// readChain calls each with the lines of the chain at path and their numbers, from 1, in bounded memory.
func readChain(path string, each func(n uint64, d decoded) error) (chainEnd, error) {
	f, fi, err := openChain(path)
	if err != nil {
		return chainEnd{}, err
	}
	defer f.Close()
	// Under the lock no line is half written. A store that may only be read cannot be locked everywhere; then a live
	// writer may show as a torn tail, which is harmless.
	if lockFile(f, unix.LOCK_SH) == nil {
		fi, err = f.Stat()
		unlockFile(f)
	}
	var end chainEnd
	if err == nil {
		end, err = readLines(io.LimitReader(f, fi.Size()), each)
	}
	if err != nil {
		err = diskError("read", path, err)
	}
	return end, err
}

// readLines decodes each line of r. A line that is too long is reported as a bad one without being held in memory.
func readLines(r io.Reader, each func(n uint64, d decoded) error) (end chainEnd, err error) {
	br := bufio.NewReaderSize(r, 16<<10)
	var line []byte
	for {
		line = line[:0]
		var length int64
		for {
			piece, rerr := br.ReadSlice('\n')
			length += int64(len(piece))
			if length <= maxLine {
				line = append(line, piece...)
			}
			if rerr == nil {
				break
			}
			if errors.Is(rerr, bufio.ErrBufferFull) {
				continue
			}
			end.torn = length
			if errors.Is(rerr, io.EOF) {
				rerr = nil
			}
			return end, rerr
		}
		end.lines++
		d := decoded{bad: fmt.Errorf("a line of %d bytes, at most %d are an event", length, maxLine)}
		if length <= maxLine {
			d = decodeEvent(line[:len(line)-1])
		}
		if err := each(end.lines, d); err != nil {
			return end, err
		}
	}
}

// chainChecker follows a chain and finds what does not fit.
type chainChecker struct {
	run  string        // every event must be of this run; empty for the audit chain
	find func(Finding) // gets what is wrong
	ok   func(Event)   // gets every valid event

	seq  uint64 // the number of the last event, as far as it is known
	head string // the hash of the last event
	bad  bool   // the last line is not an event
}

// line checks line n against the one before it. What follows a damaged line, which is reported, need not fit it.
func (c *chainChecker) line(n uint64, d decoded) {
	after := c.bad
	last, prev := c.seq, cmp.Or(c.head, noPrev)
	c.bad, c.head = d.bad != nil, d.event.Hash
	if c.bad {
		c.seq++
		c.find(Finding{Problem: ProblemBrokenEvent, Event: c.seq, Detail: fmt.Sprintf("line %d: %v", n, d.bad)})
		return
	}
	e := d.event
	broken := func(format string, args ...any) {
		c.find(Finding{Problem: ProblemBrokenLink, Event: e.Seq, Detail: fmt.Sprintf(format, args...)})
	}
	switch {
	case after:
	case e.Seq != last+1:
		broken("event %d stands after event %d: events are missing or out of order", e.Seq, last)
	case e.Prev != prev:
		broken("event %d names another event as the one before it than event %d", e.Seq, last)
	}
	if c.run != "" && e.Run != c.run {
		broken("event %d belongs to run %.40q", e.Seq, e.Run)
	}
	c.seq = e.Seq
	c.ok(e)
}

// EventSchema is the schema of every event.
const EventSchema = "hutch.event/v1"

// MaxEventData bounds, in bytes, the JSON of the data of one event that a caller appends.
const MaxEventData = 64 << 10

// EventType says what an event is about: lower-case words joined by dots. Callers may use types of their own.
type EventType string

// The types that the store itself writes.
const (
	// The first of every run's chain: who, what and when, with the run as evaluated; and its entry in the audit chain.
	EventBegin EventType = "run.begin"
	// The backend or persistent sandbox of the run is known, or another one.
	EventInfo EventType = "run.info"
	// The last of every finished run's chain, with the result; and its entry in the audit chain.
	EventEnd EventType = "run.end"
	// In the audit chain: the run was deleted on purpose.
	EventRemoved EventType = "run.removed"
	// The first of every persistent sandbox's chain, and its entry in the audit chain.
	EventSandboxBegin EventType = "sandbox.begin"
	// In the audit chain: the sandbox was removed on purpose.
	EventSandboxRemoved EventType = "sandbox.removed"
	// In the audit chain: how far a persistent sandbox's chain goes, after a run in it or a change by hand.
	EventSandboxHead EventType = "sandbox.head"
	// A torn tail was set aside; the data says where and how long it was.
	EventRepaired EventType = "repaired"
)

// The types that a run writes about itself.
const (
	EventPlan           EventType = "plan"            // backends looked at, and why each was taken or skipped
	EventCode           EventType = "code"            // declared files were written
	EventSandboxCreate  EventType = "sandbox.create"  // about to make a sandbox
	EventSandboxReady   EventType = "sandbox.ready"   // made, with how each limit is held
	EventSandboxDestroy EventType = "sandbox.destroy" // unmade
	EventDependencies   EventType = "dependencies"    // installed, or taken from the cache
	EventExecStart      EventType = "exec.start"      // a command began
	EventExecEnd        EventType = "exec.end"        // a command ended, with its cause
	// the command asks for a destination of its filtered network, by a backend that says so at once; what came of it is in
	// network.denied or network.allowed once the command ended
	EventNetworkDecided EventType = "network.decided"
	EventNetworkOpened  EventType = "network.opened" // a person allowed what was denied, until the command ends
	// the command asked for a destination that no rule allows, or that a rule denies
	EventNetworkDenied EventType = "network.denied"
	// requests to a host of a secret, after the event of that destination
	EventNetworkRequests EventType = "network.requests"
	EventNetworkAllowed  EventType = "network.allowed"  // the command used a destination of its filtered network
	EventChanges         EventType = "workspace.change" // what differs in the workspace
	EventOutputs         EventType = "outputs"          // files were collected
	EventSandboxReset    EventType = "sandbox.reset"    // in a persistent sandbox's chain: it was recreated
	EventSandboxStop     EventType = "sandbox.stop"     // in a persistent sandbox's chain: it was stopped
	EventSandboxStart    EventType = "sandbox.start"    // in a persistent sandbox's chain: it was started again
	// in a persistent sandbox's chain: a file of its record is about to be rewritten
	EventSandboxRecord EventType = "sandbox.record"
	// in a persistent sandbox's chain: files were put in or taken out by hand
	EventSandboxCopy EventType = "sandbox.copy"
	// in a persistent sandbox's chain: a file was written or edited by hand
	EventSandboxWrite EventType = "sandbox.write"
	// in a persistent sandbox's chain: a file or directory was removed by hand
	EventSandboxDelete EventType = "sandbox.delete"
	// in a persistent sandbox's chain: changes were brought back to its project
	EventSandboxApply EventType = "sandbox.apply"
	EventSandboxUndo  EventType = "sandbox.undo" // in a persistent sandbox's chain: an apply was taken back
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
	maxLine     = 32 << 20  // longer lines are not events
	filesInLine = 512 << 10 // bytes of file references after which an event goes on in another one
)

// noPrev stands for the hash of the event before the first.
var noPrev = strings.Repeat("0", hashHex)

// marshal is JSON on one line, with <, > and & as they are. Control characters cannot occur in it: the encoder escapes
// them inside of strings and compacts what is outside.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// encodeEvent returns the line of e, newline included, and sets its hash.
func encodeEvent(e *Event) ([]byte, error) {
	e.Schema, e.Hash, e.Time = EventSchema, "", e.Time.UTC()
	body, err := marshal(e)
	if err != nil {
		return nil, err
	}
	e.Hash = sumHex(body)
	line := append(body[:len(body)-1], hashMark+e.Hash+"\"}\n"...)
	if len(line) > maxLine {
		return nil, fmt.Errorf("event %s of %d bytes: at most %d are allowed", e.Type, len(line), maxLine)
	}
	return line, nil
}

// decoded is what one line of a chain holds, valid or not.
type decoded struct {
	event Event // as far as it can be read, also when it is not valid
	bad   error // why it is not a valid event
}

// decodeEvent checks one line, given without its newline.
func decodeEvent(line []byte) (d decoded) {
	if i := slices.IndexFunc(line, func(c byte) bool { return c < ' ' }); i >= 0 {
		d.bad = fmt.Errorf("control character %#02x at byte %d", line[i], i)
		return d
	}
	n := len(line) - hashSuffix
	if n < 1 || !bytes.HasPrefix(line[n:], []byte(hashMark)) || !bytes.HasSuffix(line, []byte(`"}`)) {
		d.bad = errors.New("it does not end with a hash")
		return d
	}
	if err := json.Unmarshal(line, &d.event); err != nil {
		return decoded{bad: fmt.Errorf("it is not JSON: %w", err)}
	}
	h := sha256.New()
	h.Write(line[:n])
	h.Write([]byte{'}'})
	stored := string(line[n+len(hashMark) : n+len(hashMark)+hashHex])
	switch {
	case stored != hex.EncodeToString(h.Sum(nil)):
		d.bad = errors.New("its content does not fit its hash")
	case d.event.Schema != EventSchema:
		d.bad = fmt.Errorf("schema %.40q is not %s", d.event.Schema, EventSchema)
	case d.event.Hash != stored:
		d.bad = errors.New("it has two hashes")
	}
	return d
}

// marshalData turns an event's data into JSON within its bounds; nil stays nil.
func marshalData(typ EventType, data any) (json.RawMessage, error) {
	if data == nil {
		return nil, nil
	}
	b, err := marshal(data)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", typ, err)
	}
	if len(b) > MaxEventData {
		return nil, fmt.Errorf("event %s: data of %d bytes, at most %d are allowed (put it into a file and point at that)",
			typ, len(b), MaxEventData)
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

// The audit chain of the store has an entry when a record begins, one when a run ends, one when hutch removes a record,
// and one each time a persistent sandbox was changed by hand or used by a run. It pins the head of each chain, so that
// a record of which the whole directory was replaced, cut or taken away is noticed.

// auditHead is the data of an entry about a record that stays: how far its chain goes.
type auditHead struct {
	Events uint64 `json:"events"`
	Head   string `json:"head"` // hash of the record's event of that number
}

// auditEntry is an entry of the audit chain before it is written.
type auditEntry struct {
	typ  EventType
	id   string // of the record
	data any    // an auditHead, unless the record is removed
}

// enter appends entries to the audit chain, all of them or none.
func (s *Store) enter(entries ...auditEntry) error {
	var events []Event
	for _, e := range entries {
		b, err := marshalData(e.typ, e.data)
		if err != nil {
			return err
		}
		events = append(events, Event{Run: e.id, Type: e.typ, Data: b})
	}
	_, _, err := s.audit.append(events...)
	return err
}
