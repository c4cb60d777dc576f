package store

import "context"

// Problem names what is wrong in a [Finding].
type Problem string

// The problems.
const (
	ProblemTornTail     Problem = "torn_tail"     // the last line is incomplete: a writer died; nothing earlier is lost
	ProblemBrokenEvent  Problem = "broken_event"  // a line is not an event, or its hash does not fit its content
	ProblemBrokenLink   Problem = "broken_link"   // an event does not follow from the one before it
	ProblemFileMissing  Problem = "file_missing"  // a file that an event points at is gone
	ProblemFileChanged  Problem = "file_changed"  // it differs in size or content
	ProblemHeadMismatch Problem = "head_mismatch" // result.json or the audit chain names another head
	ProblemUnfinished   Problem = "unfinished"    // the host died before the run had a result
	ProblemRecord       Problem = "record"        // run.json, definition.json or result.json cannot be read or is not the one recorded
	ProblemRunMissing   Problem = "run_missing"   // the audit chain knows a run that is not there and was not removed by hutch
	ProblemUnknownRun   Problem = "unknown_run"   // a run is there that the audit chain does not know
)

// Finding is one thing that is wrong.
type Finding struct {
	Problem Problem `json:"problem"`
	Run     string  `json:"run,omitempty"`   // empty for the audit chain
	Event   uint64  `json:"event,omitempty"` // number of the event, or of the line where it has none
	Path    string  `json:"path,omitempty"`
	Detail  string  `json:"detail"`
	// Harmless says that this is what a crash leaves behind and not damage to anything recorded.
	Harmless bool `json:"harmless,omitempty"`
}

// Report is what Verify found about one run, or about the audit chain (Run is empty).
type Report struct {
	Run      string    `json:"run,omitempty"`
	OK       bool      `json:"ok"` // no finding that is not harmless
	State    State     `json:"state,omitempty"`
	Events   uint64    `json:"events"`
	Files    int       `json:"files"` // files hashed
	Bytes    int64     `json:"bytes"` // bytes hashed
	Head     string    `json:"head,omitempty"`
	Findings []Finding `json:"findings"`
}

// Verify checks the chain of one run, every file its events point at, its result, and its entries in the audit chain.
// It changes nothing. An error means that it could not look.
func (s *Store) Verify(ctx context.Context, id string) (*Report, error) {
	return nil, errNotImplemented
}

// VerifyAll checks the audit chain and every run, newest first, and calls each with the reports as they come; the
// audit chain's is the first. It stops with the error that each returns.
func (s *Store) VerifyAll(ctx context.Context, each func(*Report) error) error {
	return errNotImplemented
}
