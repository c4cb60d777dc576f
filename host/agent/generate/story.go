package generate

import (
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
)

// Schema identifies the JSON of a [Story].
const Schema = "hutch.generate/v1"

// Ending says why a loop ended.
type Ending string

// The endings.
const (
	Worked    Ending = "worked"    // the last attempt did what was expected
	Attempts  Ending = "attempts"  // as many as there may be did not
	Budget    Ending = "budget"    // what the model may use was used up
	Same      Ending = "same"      // the model went on giving programs that had failed already
	Refused   Ending = "refused"   // the model would not answer
	Model     Ending = "model"     // the model could not be asked
	Sandbox   Ending = "sandbox"   // no program could be run
	Cancelled Ending = "cancelled" // the user ended it
)

// Story is a whole loop: what was tried, what became of it, and what it took. It is what is printed as JSON, and the
// result of the loop's record.
type Story struct {
	Schema string  `json:"schema"`
	ID     string  `json:"id"` // of the loop, and the parent of its runs
	Name   string  `json:"name"`
	File   string  `json:"file,omitempty"`
	Model  ModelID `json:"model"`

	OK     bool   `json:"ok"`
	Ending Ending `json:"ending"`
	Reason string `json:"reason"` // in words
	Hint   string `json:"hint,omitempty"`
	Status int    `json:"status"` // the exit code of hutch generate

	MaxAttempts int         `json:"max_attempts"`
	Attempts    []Attempt   `json:"attempts"` // never null
	Spent       model.Spent `json:"spent"`    // of all attempts
	Final       *Final      `json:"final,omitempty"`

	Started time.Time      `json:"started"`
	Ended   time.Time      `json:"ended"`
	Wall    result.Seconds `json:"wall_seconds"`

	Dir    string         `json:"dir"` // of the loop's record
	Events store.ChainRef `json:"events,omitzero"`

	program *program // of the last run
}

// ModelID names the model.
type ModelID struct {
	Name     string `json:"name"` // of the block
	Provider string `json:"provider"`
	Model    string `json:"model,omitempty"`
}

// Attempt is one answer of the model and what became of it.
type Attempt struct {
	N       int    `json:"n"` // from 1
	Class   Class  `json:"class"`
	Summary string `json:"summary"`
	Advice  string `json:"advice,omitempty"` // what the model was told to do about it
	File    string `json:"file,omitempty"`   // of the program, where it went wrong
	Line    int    `json:"line,omitempty"`

	Run          string     `json:"run,omitempty"` // id of the run; empty when nothing ran
	Files        []FileSize `json:"files,omitempty"`
	Entrypoint   string     `json:"entrypoint,omitempty"`
	Language     string     `json:"language,omitempty"`
	Dependencies []string   `json:"dependencies,omitempty"` // that it asks for
	SameAs       int        `json:"same_as,omitempty"`      // the attempt that had this program

	Cause    string `json:"cause,omitempty"` // of the run
	ExitCode *int   `json:"exit_code,omitempty"`

	Stop  model.Stop  `json:"stop,omitempty"` // why the answer ended
	Usage model.Usage `json:"usage"`

	Started   time.Time      `json:"started"`
	Answering result.Seconds `json:"answering_seconds"`
	Running   result.Seconds `json:"running_seconds"`
}

// FileSize is one file of a program.
type FileSize struct {
	Path string `json:"path"`
	Size int    `json:"size"`
}

// Final is where the program that works lies, and what it left.
type Final struct {
	Run        string           `json:"run"`
	Code       string           `json:"code"` // directory of the program and its inputs, absolute
	Entrypoint string           `json:"entrypoint"`
	Output     string           `json:"output,omitempty"` // directory of what it left, absolute; empty when that is nothing
	Outputs    []outputs.Output `json:"outputs"`          // never null
	Copied     string           `json:"copied,omitempty"` // directory that the program was copied to
}

// The exit codes of hutch generate beside 0 for a program that works.
const (
	statusNo     = 1   // none works
	statusFailed = 125 // the model or the sandbox failed, so that nobody knows
)

func (e Ending) status() int {
	switch e {
	case Worked:
		return 0
	case Attempts, Budget, Same, Refused:
		return statusNo
	case Cancelled:
		return result.CodeCancelled
	}
	return statusFailed
}
