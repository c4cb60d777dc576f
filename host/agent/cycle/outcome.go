package cycle

import "github.com/hutch-run/hutch/host/review"

// Outcomes of a cycle, in a word.
const (
	Done        = "done"         // the model says so, and the check agrees where there is one
	Blocked     = "blocked"      // the model says that it cannot go on
	OverBudget  = "budget"       // tokens, turns, time or tool calls are used up
	Refused     = "refused"      // the model, or its provider, would not answer
	ModelFailed = "model_error"  // the model could not be asked
	SetupFailed = "setup_failed" // the user's command before it all failed
	Failed      = "failed"       // the sandbox failed, or hutch did
	Interrupted = "interrupted"  // the user ended it
)

// outcome is how coding ended. It is recorded with the states after it, so that those can be gone on with.
type outcome struct {
	Word    string  `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`  // in a sentence, of hutch's
	Summary string  `json:"summary,omitempty"` // of the model's
	Budget  *Bound  `json:"budget,omitempty"`
	Sync    *synced `json:"sync,omitempty"` // with tear-down
}

// Bound is one that was reached.
type Bound struct {
	What  string `json:"what"` // tokens, turns, time or tool_calls
	Used  string `json:"used"`
	Limit string `json:"limit"`
}

// synced is what became of the changes.
type synced struct {
	Known   bool          `json:"known"`   // the changes could be listed
	Changes []review.Item `json:"changes"` // the first of them
	Total   int           `json:"total"`
	Applied bool          `json:"applied"` // the user's policy was followed to its end: nothing waits for a review
	Problem string        `json:"problem,omitempty"`
}

// maxSummary bounds what is kept of the model's last words, in bytes.
const maxSummary = 8 << 10
