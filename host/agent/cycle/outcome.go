package cycle

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
	Known   bool     `json:"known"`   // the changes could be listed
	Changes []Change `json:"changes"` // the first of them
	Total   int      `json:"total"`
	Applied bool     `json:"applied"` // the user's policy was followed to its end: nothing waits for a review
	Problem string   `json:"problem,omitempty"`
}

// Change is a path that differs from the project.
type Change struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"` // of a renamed file, where it was
	Kind string `json:"kind"`           // added, modified, deleted, mode, symlink, type or renamed
	// Conflict says what the project's side did to the path meanwhile.
	Conflict string `json:"conflict,omitempty"`
	// Refused are the reasons for which an apply refuses it unless that is allowed.
	Refused []string `json:"refused,omitempty"`
}

// maxSummary bounds what is kept of the model's last words, in bytes.
const maxSummary = 8 << 10
