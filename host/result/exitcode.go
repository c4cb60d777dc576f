package result

import "github.com/hutch-run/hutch/sdk"

// The exit codes of hutch that are not the program's own.
const (
	CodeExpect        = 1   // the program's own code is 0, but something else that was expected is not so
	CodeTimeout       = 124 // the program timed out
	CodeFailed        = 125 // hutch or the backend failed
	CodeNotExecutable = 126 // the command cannot be executed
	CodeNotFound      = 127 // there is no such command
	CodeCancelled     = 130 // cancelled
	CodeKilled        = 137 // killed for using too much: memory, output
)

// ok reports whether the run did what was expected of it.
func ok(r *Result) bool {
	switch {
	case r.Error != nil:
		return false
	case r.Expected:
		return len(r.ExpectFailures) == 0
	}
	return r.Cause == sdk.CauseExited && !r.NotStarted && r.ExitCode != nil && *r.ExitCode == 0
}

// ExitCode is the code with which hutch ends after these runs: 0 when all of them are ok, else the status of the
// first that is not, in the order given, which is the order of the run files and not that in which they ended.
//
// The status of one run is
//
//	0          it did what was expected: exit code 0, or all that its expect block says
//	1          its expect block does not hold although the program ended with 0
//	124        timeout
//	125        hutch or the backend failed, or the run was refused
//	126, 127   the command could not be executed, was not found
//	130        cancelled
//	137        killed for exceeding its memory, or its output_total
//	128+n      the program died of signal n
//	otherwise  the program's own code
func ExitCode(rs ...*Result) int {
	for _, r := range rs {
		if r.Status != 0 {
			return r.Status
		}
	}
	return 0
}

// status maps the end of one run to an exit code. code is the backend's: the program's own, 128 and a signal, or 126
// and 127 for a program that never started.
func status(r *Result, code int) int {
	if ok(r) {
		return 0
	}
	switch r.Cause {
	case sdk.CauseTimeout:
		return CodeTimeout
	case sdk.CauseCancelled:
		return CodeCancelled
	case sdk.CauseOOM, sdk.CauseOutput:
		return CodeKilled
	case sdk.CauseSetupFailed, sdk.CauseBackend, "":
		if r.NotStarted && (code == CodeNotExecutable || code == CodeNotFound) {
			return code
		}
		return CodeFailed
	}
	switch {
	case code > 0 && code <= 255:
		return code
	case r.Error != nil:
		return CodeFailed
	}
	return CodeExpect
}
