package generate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

// Class says in one word what became of an attempt.
type Class string

// The classes. The first ones are about the answer, before anything ran.
const (
	ClassAnswer Class = "answer" // no program could be made of it
	ClassLength Class = "length" // it was cut off by the bound on an answer's tokens
	ClassSame   Class = "same"   // it is a program that was tried already
	ClassPolicy Class = "policy" // it asks for dependencies that are not allowed, or did what the sandbox forbids

	ClassOK          Class = "ok"                 // it did what was expected
	ClassInstall     Class = "install"            // its dependencies could not be installed
	ClassInterpreter Class = "interpreter"        // the sandbox has no program that could run it
	ClassSyntax      Class = "syntax"             // it does not parse or compile
	ClassMissing     Class = "missing_dependency" // a module, package or command is not there
	ClassNetwork     Class = "network"            // a host could not be reached
	ClassTimeout     Class = "timeout"            // it timed out
	ClassMemory      Class = "memory"             // it used too much memory
	ClassLimit       Class = "limit"              // it ran into another limit
	ClassRuntime     Class = "runtime"            // it failed in any other way
	ClassOutput      Class = "missing_output"     // it ended well, and an output that is expected is not there
	ClassExpect      Class = "unexpected"         // it ended well, and something else is not as expected

	ClassSandbox   Class = "sandbox"   // hutch or the backend failed: no program could mend that
	ClassCancelled Class = "cancelled" // the user ended it
)

// Verdict is what became of an attempt, and what to do about it.
type Verdict struct {
	Class   Class
	Summary string // in a line; it may quote the program
	Advice  string // for the model; "" when there is nothing to mend
	File    string // of the program, where it went wrong; "" when that is not known
	Line    int    // of File, from 1; 0 when that is not known
}

// Classify says what became of a run from its result: from cause, exit code, limits, outputs and expectations as hutch
// recorded them, and of a program that ended by itself with a failure from what its interpreter said last. installs
// tells whether a program may ask for dependencies.
func Classify(d *runfile.Definition, r *result.Result, installs bool) Verdict {
	switch {
	case r.OK:
		return Verdict{Class: ClassOK, Summary: "it works"}
	case r.Cause == sdk.CauseCancelled:
		return Verdict{Class: ClassCancelled, Summary: "it was cancelled"}
	case r.NotStarted:
		return interpreter(d, r)
	case r.Error != nil && r.Error.Phase == "dependencies" && r.Cause == sdk.CauseSetupFailed:
		return Verdict{Class: ClassInstall, Summary: r.Error.Summary,
			Advice: "The packages could not be installed. Check their names and versions on the registry, or do without them."}
	case r.Error != nil, r.Cause == sdk.CauseBackend, r.Cause == sdk.CauseSetupFailed:
		v := Verdict{Class: ClassSandbox, Summary: "the sandbox failed"}
		if r.Error != nil {
			v.Summary = r.Error.Error()
		}
		return v
	}
	if v, ok := limited(r); ok {
		return v
	}
	if failed(r) {
		return crashed(d, r, installs)
	}
	return unmet(d, r)
}

// failed reports whether the program itself failed, by its exit code or a signal, and that was not expected of it.
func failed(r *result.Result) bool {
	if !r.Expected {
		return true
	}
	if r.Cause == sdk.CauseExited && r.ExitCode != nil && *r.ExitCode == 0 {
		return false // it ended well, even where another code is expected
	}
	return slices.ContainsFunc(r.ExpectFailures, func(f result.ExpectFailure) bool { return f.What == "exit_code" || f.What == "cause" })
}

// interpreter is about a command that could not be started.
func interpreter(d *runfile.Definition, r *result.Result) Verdict {
	name := "the interpreter"
	if len(r.Command) > 0 {
		name = r.Command[0]
	}
	return Verdict{Class: ClassInterpreter, Summary: fmt.Sprintf("the sandbox has no %s", name),
		Advice: fmt.Sprintf("The sandbox has no %s, so nothing in %s can be run there. Write the whole program again, in another language.", name, languageOf(d.Language, d.Entrypoint))}
}

// limits are the causes that are a limit of the sandbox, with the limit.
var limits = map[sdk.Cause]struct {
	limit sdk.Limit
	Verdict
}{
	sdk.CauseTimeout: {sdk.LimitTimeout, Verdict{Class: ClassTimeout, Summary: "it timed out",
		Advice: "The program was ended because it timed out. Make it end by itself: no endless loop, no waiting for " +
			"input, no server that runs on, a quicker algorithm, less work."}},
	sdk.CauseOOM: {sdk.LimitMemory, Verdict{Class: ClassMemory, Summary: "it used more memory than its limit",
		Advice: faults[faultMemory].Advice}},
	sdk.CausePIDs: {sdk.LimitPIDs, Verdict{Class: ClassLimit, Summary: "it needed more processes or threads than its limit",
		Advice: faults[faultProcesses].Advice}},
	sdk.CauseDisk: {sdk.LimitDisk, Verdict{Class: ClassLimit, Summary: "it wrote more than its limit",
		Advice: faults[faultDisk].Advice}},
	sdk.CauseOutput: {"", Verdict{Class: ClassLimit, Summary: "it printed more than its limit",
		Advice: "The program printed too much and was ended. Print only what is asked for, and write data to files in " +
			"the output directory."}},
}

// limited is about the limits that hutch itself says are the cause.
func limited(r *result.Result) (Verdict, bool) {
	l, ok := limits[r.Cause]
	for _, x := range r.Limits {
		if ok && x.Limit == l.limit {
			l.Summary += " of " + x.Value
		}
	}
	return l.Verdict, ok
}

// faults are the verdicts on programs that ended with their own failure, but for what depends on more than that.
var faults = map[fault]Verdict{
	faultOther: {Class: ClassRuntime, Advice: "The program failed while it ran. Find the reason at the place that the " +
		"message names, and mend it there."},
	faultSyntax: {Class: ClassSyntax, Advice: "The program does not parse or compile. Mend the place that the message " +
		"names, and check the rest of the file for the same mistake."},
	faultMissing: {Class: ClassMissing},
	faultNetwork: {Class: ClassNetwork, Advice: "The host could not be reached. Check its name and port, and handle the " +
		"error."},
	faultMemory: {Class: ClassMemory, Advice: "The program used more memory than it may. Work on the data in pieces or " +
		"as a stream, and keep less of it at once."},
	faultProcesses: {Class: ClassLimit, Advice: "The program may not have as many processes and threads. Do the work in " +
		"one, or in a few."},
	faultFiles: {Class: ClassLimit, Advice: "The program may not have as many files open at once. Close each one when it " +
		"is done with."},
	faultDisk: {Class: ClassLimit, Advice: "The program wrote more than it may. Write less, and remove temporary files."},
	faultDenied: {Class: ClassPolicy, Advice: "The sandbox does not permit this. Files can be made in the output " +
		"directory, the workspace and /tmp only; the input directory is read-only. There are no further rights to be had."},
}

// crashed is about a program that ended with its own failure.
func crashed(d *runfile.Definition, r *result.Result, installs bool) Verdict {
	lang := languageOf(d.Language, d.Entrypoint)
	var files []string
	for _, f := range d.Files {
		files = append(files, f.Path)
	}
	e, ok := findError(lang, r.Stderr.Text, files)
	if !ok {
		return Verdict{Class: ClassRuntime, Summary: ending(r) + wanted(r),
			Advice: "The program failed without a message of the interpreter. Handle the error that it ran into, or let it be shown with its place." + alsoDenied(d, r)}
	}
	v := faults[e.fault]
	v.Summary, v.File, v.Line = e.message, e.file, e.line
	switch e.fault {
	case faultSyntax:
		if e.file == "" && lang != "go" { // a text that the program itself gave to an interpreter
			v.Class, v.Advice = ClassRuntime, "The program made code or data that does not parse. Look at what it hands to the parser."
		}
	case faultMissing:
		v.Advice = missing(d, lang, e, installs)
	case faultNetwork:
		if !d.Network.Reaches() {
			v.Advice = "The sandbox has no network at all, and will have none. Do without it: use the input files, or make " +
				"the data in the program."
		} else if denied := denials(r); denied != "" {
			v.Class, v.Summary = ClassPolicy, "denied: "+denied
			v.Advice = d.Network.Sentence() + " Use those only, the input files, or data that the program makes."
		}
	}
	if v.Class == ClassRuntime {
		v.Advice += alsoDenied(d, r)
	}
	return v
}

// denials lists the destinations that were denied; "" for none.
func denials(r *result.Result) string {
	var all []string
	for _, t := range r.Network.Denied() {
		text, _ := network.Denial(t)
		all = append(all, text)
	}
	return few(all)
}

// alsoDenied is what to add about a program that failed for a reason that may be a denied destination.
func alsoDenied(d *runfile.Definition, r *result.Result) string {
	denied := denials(r)
	if denied == "" {
		return ""
	}
	return fmt.Sprintf(" This was denied to it: %s. %s", denied, d.Network.Sentence())
}

// missing says what to do about a module that is not there, which depends on whose it is.
func missing(d *runfile.Definition, lang string, e lastError, installs bool) string {
	if lang == "shell" {
		return fmt.Sprintf("The sandbox has no program %s. Do without it.", e.what)
	}
	for _, f := range d.Files {
		if stem(f.Path) == path.Base(e.what) {
			return fmt.Sprintf("There is a file %s, but the program does not find it under the name %s. Name it as it lies relative to the directory of the files.", f.Path, e.what)
		}
	}
	if strings.HasPrefix(e.what, ".") || strings.HasPrefix(e.what, "/") {
		return fmt.Sprintf("None of the program's files is %s. Give it, or do not use it.", e.what)
	}
	if installs && len(installable(lang)) > 0 {
		return fmt.Sprintf("%s is neither one of the program's files nor a package that is installed. Use the standard library instead, or name the package that has it in the line \"Dependencies:\".", e.what)
	}
	return fmt.Sprintf("%s is neither one of the program's files nor part of the language, and nothing can be installed. Use the standard library.", e.what)
}

// unmet is about a program that ended as it should, and yet did not do all that is expected.
func unmet(d *runfile.Definition, r *result.Result) Verdict {
	var missing, other []string
	for _, f := range r.ExpectFailures {
		text := fmt.Sprintf("%s: want %s, got %s", f.What, f.Want, f.Got)
		if strings.HasPrefix(f.What, "outputs[") {
			missing = append(missing, text)
		} else {
			other = append(other, text)
		}
	}
	if len(missing) == 0 {
		return Verdict{Class: ClassExpect, Summary: strings.Join(other, "; "), Advice: "The program ended well, but what it did is not what is expected of it."}
	}
	v := Verdict{Class: ClassOutput, Summary: strings.Join(missing, "; ")}
	var there, elsewhere []string
	for _, o := range r.Outputs {
		there = append(there, o.Path)
	}
	for _, c := range r.Changes {
		if c.Kind == "added" {
			elsewhere = append(elsewhere, c.Path)
		}
	}
	v.Advice = "The program ended well but did not leave what is expected in the output directory, which the variable HUTCH_OUTPUT names. A relative path does not lead there."
	if len(there) > 0 {
		v.Advice += " It left there: " + few(there) + "."
	}
	if len(elsewhere) > 0 {
		v.Advice += " It made these in the workspace instead, where they do not count: " + few(elsewhere) + "."
	}
	return v
}

// wanted says which exit code is expected, where that is another one than 0.
func wanted(r *result.Result) string {
	for _, f := range r.ExpectFailures {
		if f.What == "exit_code" && f.Want != "0" {
			return ", and " + f.Want + " is expected"
		}
	}
	return ""
}

// ending says how a program ended that said nothing.
func ending(r *result.Result) string {
	switch {
	case r.Signal != "":
		return "it was ended by " + r.Signal
	case r.ExitCode != nil:
		return fmt.Sprintf("it ended with exit code %d", *r.ExitCode)
	}
	return "it failed: " + string(r.Cause)
}

// few lists the first of some names.
func few(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
