package generate

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run/language"
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
// reports whether a program may ask for dependencies.
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
	return slices.ContainsFunc(r.ExpectFailures, func(f result.ExpectFailure) bool {
		return f.What == "exit_code" ||
			f.What == "cause"
	})
}

// interpreter is about a command that could not be started.
func interpreter(d *runfile.Definition, r *result.Result) Verdict {
	name := "the interpreter"
	if len(r.Command) > 0 {
		name = r.Command[0]
	}
	return Verdict{Class: ClassInterpreter, Summary: fmt.Sprintf("the sandbox has no %s", name),
		Advice: fmt.Sprintf("The sandbox has no %s, so nothing in %s can be run there. Write the whole program again, in "+
			"another language.", name, languageOf(d.Language, d.Entrypoint))}
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
	sdk.CausePIDs: {sdk.LimitPIDs, Verdict{Class: ClassLimit,
		Summary: "it needed more processes or threads than its limit",
		Advice:  faults[faultProcesses].Advice}},
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
	faultData: {Class: ClassRuntime,
		Advice: "The program made code or data that does not parse. Look at what it hands to " +
			"the parser."},
	faultMissing: {Class: ClassMissing},
	faultNetwork: {Class: ClassNetwork, Advice: "The host could not be reached. Check its name and port, and handle the " +
		"error."},
	faultMemory: {Class: ClassMemory, Advice: "The program used more memory than it may. Work on the data in pieces or " +
		"as a stream, and keep less of it at once."},
	faultProcesses: {Class: ClassLimit, Advice: "The program may not have as many processes and threads. Do the work in " +
		"one, or in a few."},
	faultFiles: {Class: ClassLimit,
		Advice: "The program may not have as many files open at once. Close each one when it " +
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
			Advice: "The program failed without a message of the interpreter. Handle the error that it ran into, or let it " +
				"be shown with its place." + alsoDenied(d, r)}
	}
	v := faults[e.fault]
	v.Summary, v.File, v.Line = e.message, e.file, e.line
	switch e.fault {
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
			return fmt.Sprintf("There is a file %s, but the program does not find it under the name %s. Name it as it lies "+
				"relative to the directory of the files.", f.Path, e.what)
		}
	}
	if strings.HasPrefix(e.what, ".") || strings.HasPrefix(e.what, "/") {
		return fmt.Sprintf("None of the program's files is %s. Give it, or do not use it.", e.what)
	}
	if installs && len(installable(lang)) > 0 {
		return fmt.Sprintf("%s is neither one of the program's files nor a package that is installed. Use the standard "+
			"library instead, or name the package that has it in the line \"Dependencies:\".", e.what)
	}
	return fmt.Sprintf("%s is neither one of the program's files nor part of the language, and nothing can be "+
		"installed. Use the standard library.", e.what)
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
		return Verdict{Class: ClassExpect, Summary: strings.Join(other, "; "),
			Advice: "The program ended well, but what it did is not what is expected of it."}
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
	v.Advice = "The program ended well but did not leave what is expected in the output directory, which the variable " +
		"HUTCH_OUTPUT names. A relative path does not lead there."
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

// fault sorts what an interpreter says about the error that ended a program.
type fault string

const (
	faultSyntax    fault = "syntax"
	faultData      fault = "data"      // code or data that the program itself made does not parse
	faultMissing   fault = "missing"   // a module, package or command that is not there
	faultNetwork   fault = "network"   // a name that is not resolved, a host that is not reached
	faultMemory    fault = "memory"    // the interpreter itself says that memory is used up
	faultProcesses fault = "processes" // no further process or thread could be started
	faultFiles     fault = "files"     // too many open files
	faultDisk      fault = "disk"      // no space is left
	faultDenied    fault = "denied"    // a place that may not be written, or not be read
	faultOther     fault = "other"
)

// faultNames sorts errors by their names in messages, in lower case: names of types, and for errors of the system their
// names, numbers and texts.
var faultNames = sync.OnceValue(func() map[string]fault {
	m := map[string]fault{}
	for f, errnos := range map[fault][]syscall.Errno{
		faultNetwork: {syscall.ENETUNREACH, syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ETIMEDOUT},
		faultMemory:  {syscall.ENOMEM}, faultProcesses: {syscall.EAGAIN}, faultFiles: {syscall.EMFILE, syscall.ENFILE},
		faultDisk: {syscall.ENOSPC, syscall.EDQUOT}, faultDenied: {syscall.EROFS, syscall.EACCES, syscall.EPERM},
	} {
		for _, e := range errnos {
			for _, name := range []string{unix.ErrnoName(e), e.Error(), strconv.Itoa(int(e))} {
				m[strings.ToLower(name)] = f
			}
		}
	}
	for f, names := range map[fault][]string{
		faultSyntax:  {"SyntaxError", "IndentationError", "TabError"},
		faultMissing: {"MODULE_NOT_FOUND", "ERR_MODULE_NOT_FOUND", "LoadError"},
		faultNetwork: {"ENOTFOUND", "EAI_AGAIN", "-2", "-3", "SocketError", "Socket::ResolutionError", "socket.gaierror",
			"ConnectionRefusedError", "urllib.error.URLError", "requests.exceptions.ConnectionError", "httpx.ConnectError",
			"dial tcp", "dial udp"},
		faultMemory: {"MemoryError", "numpy.core._exceptions._ArrayMemoryError", "numpy._core._exceptions._ArrayMemoryError",
			"NoMemoryError", "JavaScript heap out of memory", "out of memory"},
		faultProcesses: {"can't start new thread", "cannot fork"},
	} {
		for _, name := range names {
			m[strings.ToLower(name)] = f
		}
	}
	return m
})

// errorForm is the form in which an interpreter reports the error that ended a program. The expressions match what
// interpreters write by themselves, and nothing that a program may have said in its own words.
type errorForm struct {
	message string // the line that says it
	last    bool   // it is the last such line, else the first
	place   string // a file and a line, from the message on, the innermost first
	before  bool   // places stand before the message, the innermost last; without one there is no error
	above   int    // of how many lines above the message may be one of its place
	name    string // names of the error, for faultNames
	causes  string // further lines with names: of what caused the error
	missing string // of a message: what is not there
	syntax  string // of a message: the program does not parse
	loose   string // without a message: the last line that ends with the name of an error
}

// errorForms are the forms by language.
var errorForms = map[string]errorForm{
	"python": {message: pythonMessage, last: true, place: `^ *File "([^"]+)", line (\d+)`, before: true,
		causes:  pythonMessage,
		name:    `^([\w.]+)(?::|$)|\[Errno (-?\d+)\]|: (can't start new thread)$`,
		missing: `^ModuleNotFoundError: No module named '([^']+)'`},
	"javascript": {message: `^(?:Uncaught )?[A-Z]\w*(?: \[\w+\])?: |JavaScript heap out of memory`, last: true, above: 8,
		place: `^(?: +at (?:.* \()?)?((?:file://)?/[^():]+):(\d+)(?::\d+\)?)?$`, causes: `\bcode: '`,
		name:    `^(?:Uncaught )?(SyntaxError)|^[A-Z]\w* \[(\w+)\]|\bcode: '(\w+)'|(JavaScript heap out of memory)`,
		missing: `^Error(?: \[\w+\])?: Cannot find (?:module|package) '([^']+)'`},
	"go": {message: `^panic: |^fatal error: |` + goPlace, place: `^\s*(\S+\.go):(\d+)`,
		name: `(out of memory|dial (?:tcp|udp))|: ([^:]+)$`, syntax: goPlace, loose: `: ([^:]+)$|(dial (?:tcp|udp))`,
		missing: goPlace + `.*?(?:no required module provides package|cannot find module providing package|` +
			`cannot find package|package) "?([^\s":;]+)"?(?: is not in std|:|;|$)`},
	"shell": {message: shellPlace, last: true, place: shellPlace, name: `: ([^:]+)$`,
		syntax: shellPlace + `(?i:syntax error|unexpected eof)`, missing: shellPlace + `(.*?):.*\bnot found$`},
	"ruby": {message: `^\S+?:\d+:.*(?:syntax error| \(\w[\w:]*\)$)`, place: `^(?:\s*from )?(\S+?):(\d+):`,
		name: `\((?:Errno::)?([\w:]+)\)$`, syntax: `: syntax error`, missing: ` cannot load such file -- (\S+)`},
	"perl": {message: ` at \S+ line \d+|^Out of memory(?:!$| in perl:)`, place: ` at (\S+) line (\d+)`,
		name:    `^(Out of memory)`,
		syntax:  `^(?:syntax error|Missing right curly)|requires explicit package name`,
		missing: `^Can't locate (\S+)\.pm in @INC`},
}

const (
	pythonMessage = `^(?:(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*|(?:[A-Za-z_]\w*\.)+\w+)(?:: |$)|^Fatal Python error:`
	goPlace       = `^\S+\.go:\d+(?::\d+)?: `
	shellPlace    = `^(\S+?): (?:line )?(\d+): `
)

// lastError is what an interpreter said at the very end: the error that nobody caught.
type lastError struct {
	fault   fault
	message string // the line that says it
	what    string // the module, package or command that is missing; "" when it does not say
	file    string // one of the program's files, "" when none is named
	line    int    // of file, from 1; 0 when it is not said
}

// findError reads the error that ended a program. files are the program's own; names in messages are mapped to them.
func findError(lang, stderr string, files []string) (e lastError, ok bool) {
	f, known := errorForms[lang]
	if !known {
		return e, false
	}
	lines, at := strings.Split(strings.TrimRight(stderr, "\n"), "\n"), -1
	for i, line := range lines {
		if (at < 0 || f.last) && match(f.message, line) != nil {
			at = i
		}
	}
	if at < 0 {
		for _, line := range slices.Backward(lines) {
			if e = (lastError{fault: faultIn(f.loose, line), message: line}); e.fault != faultOther {
				return e, true
			}
		}
		return e, false
	}
	e = lastError{fault: faultOther, message: lines[at]}
	for i, line := range lines {
		if i == at || (f.before || i > at) && match(f.causes, line) != nil {
			if found := faultIn(f.name, line); found != faultOther {
				e.fault = found
			}
		}
	}
	if m := match(f.missing, e.message); m != nil {
		e.fault, e.what = faultMissing, m[len(m)-1]
	} else if match(f.syntax, e.message) != nil {
		e.fault = faultSyntax
	}
	places := slices.Clone(lines[max(at-f.above, 0):])
	if f.before {
		places = slices.Clone(lines[:at+1])
		slices.Reverse(places)
	}
	first := e.at(f.place, places, files)
	switch {
	case f.before && !first && e.file == "" && e.fault != faultMemory:
		return e, slices.ContainsFunc(places, func(line string) bool { return match(f.place, line) != nil })
	case e.fault == faultSyntax && !first && lang != "go":
		e.fault = faultData
	}
	return e, true
}

// at finds the innermost place in one of the program's files, and reports whether it is the innermost of all.
func (e *lastError) at(place string, lines, files []string) (innermost bool) {
	innermost = true
	for _, line := range lines {
		m := match(place, line)
		if m == nil {
			continue
		}
		if e.file = own(m[1], files); e.file != "" {
			if n, err := strconv.ParseUint(m[2], 10, 31); err == nil { // else it is no line of any file
				e.line = int(n)
			}
			return innermost
		}
		innermost = false
	}
	return false
}

// faultIn sorts the names of errors in a line.
func faultIn(name, line string) fault {
	found := faultOther
	if name == "" {
		return found
	}
	for _, m := range compiled(name).FindAllStringSubmatch(line, -1) {
		for _, s := range m[1:] {
			if f := faultNames()[strings.ToLower(s)]; f != "" {
				found = f
			}
		}
	}
	return found
}

// match is what an expression finds in a line; nil for nothing, and where the expression is empty.
func match(expr, line string) []string {
	if expr == "" {
		return nil
	}
	return compiled(expr).FindStringSubmatch(line)
}

// expressions are those that were needed so far: hutch's start must not pay for them.
var expressions sync.Map

func compiled(expr string) *regexp.Regexp {
	re, ok := expressions.Load(expr)
	if !ok {
		re, _ = expressions.LoadOrStore(expr, regexp.MustCompile(expr))
	}
	return re.(*regexp.Regexp)
}

// own is the one of files that an interpreter means: it names them with the directory of the sandbox.
func own(name string, files []string) string {
	name, best := path.Clean(strings.TrimPrefix(name, "file://")), ""
	for _, f := range files {
		if (name == f || strings.HasSuffix(name, "/"+f)) && len(f) > len(best) {
			best = f
		}
	}
	return best
}

// languageOf is hutch's name of the language of a program.
func languageOf(lang, entrypoint string) string {
	if lang != "" {
		return lang
	}
	if l, ok := language.ByPath(entrypoint); ok {
		return l.Name
	}
	return ""
}
