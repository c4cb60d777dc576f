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

// fault sorts what an interpreter says about the error that ended a program.
type fault string

const (
	faultSyntax    fault = "syntax"
	faultMissing   fault = "missing"   // a module, package or command that is not there
	faultNetwork   fault = "network"   // a name that is not resolved, a host that is not reached
	faultMemory    fault = "memory"    // the interpreter itself says that memory is used up
	faultProcesses fault = "processes" // no further process or thread could be started
	faultFiles     fault = "files"     // too many open files
	faultDisk      fault = "disk"      // no space is left
	faultDenied    fault = "denied"    // a place that may not be written, or not be read
	faultOther     fault = "other"
)

// lastError is what an interpreter said at the very end: the error that nobody caught.
type lastError struct {
	fault   fault
	message string // the line that says it
	what    string // the module, package, command or path that it is about; "" when it does not say
	file    string // one of the program's files, "" when none is named
	line    int    // of file, from 1; 0 when it is not said
}

// readers find the last error in what a program of a language wrote to stderr. They read what the interpreters write by
// themselves, and nothing that a program may have said in its own words.
var readers = map[string]func(lines []string) (lastError, bool){
	"python": pythonError, "javascript": nodeError, "go": goError, "shell": shellError, "ruby": rubyError, "perl": perlError,
}

// findError reads the error that ended a program. files are the program's own; names in messages are mapped to them.
func findError(lang, stderr string, files []string) (lastError, bool) {
	read := readers[lang]
	if read == nil {
		return lastError{}, false
	}
	e, ok := read(strings.Split(strings.TrimRight(stderr, "\n"), "\n"))
	if !ok {
		return e, false
	}
	e.file = own(e.file, files)
	if e.file == "" {
		e.line = 0
	}
	return e, true
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

// at takes in a place: a file, and a number that may be no line of any file.
func (e *lastError) at(m []string) {
	n, err := strconv.ParseUint(m[2], 10, 31)
	if err != nil {
		n = 0
	}
	e.file, e.line = m[1], int(n)
}

// submatch is what the first parentheses of an expression match; "" for nothing.
func submatch(re *regexp.Regexp, text string) string {
	if m := re.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
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

// The expressions are compiled at their first use: hutch's start must not pay for them.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

var (
	quotedLast = lazy(`'([^']+)'[^']*$`)

	nodeRaised = lazy(`^(?:Uncaught )?([A-Z]\w*)(?: \[(\w+)\])?: (.*)$`)
	nodeCode   = lazy(`\bcode: '(\w+)'`)
	nodeModule = lazy(`Cannot find (?:module|package) '([^']+)'`)
	nodePlace  = lazy(`^((?:file://)?/\S+):(\d+)$`)
	nodeStack  = lazy(`^ +at (?:.* \()?((?:file://)?/[^():]+):(\d+):\d+\)?$`)

	goPlace   = lazy(`^(\S+\.go):(\d+)(?::\d+)?: (.*)$`)
	goMissing = lazy(`(?:no required module provides package|cannot find module providing package|cannot find package|package) "?([^\s":;]+)"?(?: is not in std|:|;|$)`)
	goStack   = lazy(`^\s+(/\S+\.go):(\d+)`)

	shellPlace = lazy(`^(\S+?): (?:line )?(\d+): (.*)$`)

	rubyPlace = lazy(`^(\S+?):(\d+):(?:in .*?: )? ?(.*?)(?: \((\w[\w:]*)\))?$`)
	perlPlace = lazy(` at (\S+) line (\d+)`)
	perlMiss  = lazy(`^Can't locate (\S+)\.pm in @INC`)
)

// systemFaults are the errors of the system that say what is wrong.
var systemFaults = map[syscall.Errno]fault{
	syscall.ENETUNREACH: faultNetwork, syscall.ECONNREFUSED: faultNetwork, syscall.EHOSTUNREACH: faultNetwork,
	syscall.ETIMEDOUT: faultNetwork, syscall.ENOMEM: faultMemory, syscall.EAGAIN: faultProcesses,
	syscall.EMFILE: faultFiles, syscall.ENFILE: faultFiles, syscall.ENOSPC: faultDisk, syscall.EDQUOT: faultDisk,
	syscall.EROFS: faultDenied, syscall.EACCES: faultDenied, syscall.EPERM: faultDenied,
}

// faultNamed sorts an error by its name, as node and ruby write it.
func faultNamed(name string) fault {
	switch name {
	case "MODULE_NOT_FOUND", "ERR_MODULE_NOT_FOUND", "LoadError":
		return faultMissing
	case "ENOTFOUND", "EAI_AGAIN", "SocketError", "Socket::ResolutionError":
		return faultNetwork
	case "NoMemoryError":
		return faultMemory
	case "SyntaxError":
		return faultSyntax
	}
	name = strings.TrimPrefix(name, "Errno::")
	for e, f := range systemFaults {
		if unix.ErrnoName(e) == name {
			return f
		}
	}
	return faultOther
}

// faultSaid sorts an error by how a line ends, as go and the shells write it.
func faultSaid(line string) fault {
	if strings.Contains(line, "dial tcp") || strings.Contains(line, "dial udp") {
		return faultNetwork
	}
	for e, f := range systemFaults {
		if strings.HasSuffix(line, ": "+e.Error()) {
			return f
		}
	}
	return faultOther
}

// nodeError reads what node writes about an error that was not caught: its place, its name, a stack, its code.
func nodeError(lines []string) (lastError, bool) {
	at := -1
	for i, line := range lines {
		if strings.Contains(line, "JavaScript heap out of memory") {
			return lastError{fault: faultMemory, message: line}, true
		}
		if nodeRaised().MatchString(line) {
			at = i
		}
	}
	if at < 0 {
		return lastError{}, false
	}
	m := nodeRaised().FindStringSubmatch(lines[at])
	e := lastError{fault: faultOther, message: lines[at]}
	for i := at - 1; i >= 0 && i > at-8; i-- { // the place stands above, with an excerpt
		if p := nodePlace().FindStringSubmatch(lines[i]); p != nil {
			e.at(p)
			break
		}
	}
	codes := []string{m[2]}
	for _, line := range lines[at:] {
		if p := nodeStack().FindStringSubmatch(line); p != nil && e.file == "" {
			e.at(p)
		}
		if c := nodeCode().FindStringSubmatch(line); c != nil {
			codes = append(codes, c[1])
		}
	}
	if m[1] == "SyntaxError" {
		e.fault = faultSyntax
		return e, true
	}
	for _, c := range codes {
		if f := faultNamed(c); f != faultOther {
			e.fault = f
		}
	}
	switch e.fault {
	case faultMissing:
		e.what = submatch(nodeModule(), e.message)
	case faultDenied:
		e.what = submatch(quotedLast(), e.message)
	}
	return e, true
}

// goError reads the compiler's messages, else a panic.
func goError(lines []string) (lastError, bool) {
	for i, line := range lines {
		if strings.HasPrefix(line, "fatal error: ") && (strings.Contains(line, "out of memory") || strings.Contains(line, "cannot allocate memory")) {
			return lastError{fault: faultMemory, message: line}, true
		}
		if !strings.HasPrefix(line, "panic: ") && !strings.HasPrefix(line, "fatal error: ") {
			continue
		}
		e := lastError{fault: faultSaid(line), message: line}
		for _, l := range lines[i:] {
			if p := goStack().FindStringSubmatch(l); p != nil && !strings.HasPrefix(p[1], "/usr/") {
				e.at(p)
				break
			}
		}
		return e, true
	}
	for _, line := range lines {
		p := goPlace().FindStringSubmatch(line)
		if p == nil {
			continue
		}
		e := lastError{fault: faultSyntax, message: line}
		e.at(p)
		if m := goMissing().FindStringSubmatch(p[3]); m != nil {
			e.fault, e.what = faultMissing, m[1]
		}
		return e, true
	}
	for i := len(lines) - 1; i >= 0; i-- { // log.Fatal has no form of its own, but system errors have
		if f := faultSaid(lines[i]); f != faultOther {
			return lastError{fault: f, message: lines[i]}, true
		}
	}
	return lastError{}, false
}

// shellError reads the last message of the shell itself.
func shellError(lines []string) (lastError, bool) {
	for i := len(lines) - 1; i >= 0; i-- {
		p := shellPlace().FindStringSubmatch(lines[i])
		if p == nil {
			continue
		}
		e := lastError{fault: faultSaid(strings.ToLower(lines[i])), message: lines[i]}
		e.at(p)
		said := strings.ToLower(p[3])
		switch {
		case strings.HasPrefix(said, "syntax error"), strings.HasPrefix(said, "unexpected eof"):
			e.fault = faultSyntax
		case strings.HasSuffix(said, ": not found"), strings.HasSuffix(said, ": command not found"):
			e.fault = faultMissing
			e.what, _, _ = strings.Cut(p[3], ":")
		case strings.Contains(said, "cannot fork"):
			e.fault = faultProcesses
		}
		return e, true
	}
	return lastError{}, false
}

// rubyError reads the first line of what ruby writes about an exception: place, message, type.
func rubyError(lines []string) (lastError, bool) {
	for i, line := range lines {
		p := rubyPlace().FindStringSubmatch(line)
		if p == nil || p[4] == "" && !strings.Contains(line, "syntax error") {
			continue
		}
		e := lastError{fault: faultNamed(p[4]), message: line}
		e.at(p)
		switch {
		case strings.Contains(p[3], "syntax error"):
			e.fault = faultSyntax
		case e.fault == faultMissing:
			_, e.what, _ = strings.Cut(p[3], "cannot load such file -- ")
		case e.fault == faultDenied:
			_, e.what, _ = strings.Cut(p[3], " @ rb_sysopen - ")
		}
		if own := rubyOwn(lines[i:]); own != nil {
			e.at(own)
		}
		return e, true
	}
	return lastError{}, false
}

// rubyOwn is the innermost place that is not in ruby's own library.
func rubyOwn(lines []string) []string {
	for _, line := range lines {
		line = strings.TrimPrefix(strings.TrimSpace(line), "from ")
		if p := rubyPlace().FindStringSubmatch(line); p != nil && strings.HasPrefix(p[1], "/") && !strings.HasPrefix(p[1], "/usr/") && !strings.HasPrefix(p[1], "/var/") {
			return p
		}
	}
	return nil
}

// perlError reads perl's first message.
func perlError(lines []string) (lastError, bool) {
	for _, line := range lines {
		p := perlPlace().FindStringSubmatch(line)
		if line == "Out of memory!" || strings.HasPrefix(line, "Out of memory in perl:") {
			return lastError{fault: faultMemory, message: line}, true
		}
		if p == nil {
			continue
		}
		e := lastError{fault: faultOther, message: line}
		e.at(p)
		said := line[:strings.Index(line, p[0])]
		if m := perlMiss().FindStringSubmatch(line); m != nil {
			e.fault, e.what = faultMissing, strings.ReplaceAll(m[1], "/", "::")
		} else if strings.HasPrefix(said, "syntax error") || strings.HasPrefix(said, "Missing right curly") || strings.Contains(said, "requires explicit package name") {
			e.fault = faultSyntax
		}
		return e, true
	}
	return lastError{}, false
}

var (
	pythonFile   = lazy(`^ *File "([^"]+)", line (\d+)`)
	pythonRaised = lazy(`^([A-Za-z_][\w.]*)(?:: (.*))?$`)
	pythonModule = lazy(`No module named '([^']+)'`)
	errno        = lazy(`\[Errno (-?\d+)\]`)
)

// pythonSyntax are the errors of python's parser. They name the place in what was parsed, which need not be a file.
var pythonSyntax = map[string]bool{"SyntaxError": true, "IndentationError": true, "TabError": true}

// pythonError reads a traceback: the last place, and the line without indentation below it.
func pythonError(lines []string) (lastError, bool) {
	var e lastError
	var chain []string // every error of the chain of causes
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "Fatal Python error:") || lines[i] == "MemoryError" {
			e = lastError{message: lines[i]}
			chain = append(chain, lines[i])
			continue
		}
		place := pythonFile().FindStringSubmatch(lines[i])
		if place == nil {
			continue
		}
		for k := i + 1; k < len(lines); k++ {
			if pythonFile().MatchString(lines[k]) {
				break
			}
			if m := pythonRaised().FindStringSubmatch(lines[k]); m != nil {
				e = lastError{message: lines[k]}
				e.at(place)
				chain, i = append(chain, lines[k]), k
				break
			}
		}
	}
	if len(chain) == 0 {
		return e, false
	}
	kind, _, _ := strings.Cut(e.message, ":")
	if pythonSyntax[kind] && !strings.HasPrefix(e.file, "<") && !strings.HasPrefix(e.file, "/usr/") {
		e.fault = faultSyntax
		return e, true
	}
	// The innermost frame is often in the library; the last place in a file of the program is what can be mended.
	for i := len(lines) - 1; i >= 0; i-- {
		if m := pythonFile().FindStringSubmatch(lines[i]); m != nil && !strings.HasPrefix(m[1], "/usr/") && !strings.HasPrefix(m[1], "<") && !strings.HasPrefix(m[1], "/opt/") {
			e.at(m)
			break
		}
	}
	if kind == "ModuleNotFoundError" {
		e.fault, e.what = faultMissing, submatch(pythonModule(), e.message)
		return e, true
	}
	e.fault = faultOther
	for _, line := range chain {
		if f := pythonFault(line); f != faultOther {
			if e.fault = f; f == faultDenied {
				e.what = submatch(quotedLast(), line)
			}
		}
	}
	return e, true
}

// pythonFault sorts one error by its type, and OSErrors by their number.
func pythonFault(line string) fault {
	kind, message, _ := strings.Cut(line, ":")
	switch kind {
	case "MemoryError", "numpy.core._exceptions._ArrayMemoryError", "numpy._core._exceptions._ArrayMemoryError":
		return faultMemory
	case "socket.gaierror", "ConnectionRefusedError", "urllib.error.URLError", "requests.exceptions.ConnectionError", "httpx.ConnectError":
		return faultNetwork
	case "RuntimeError":
		if message == " can't start new thread" {
			return faultProcesses
		}
	}
	n, _ := strconv.Atoi(submatch(errno(), line)) // 0 for none
	if f, known := systemFaults[syscall.Errno(n)]; known {
		return f
	}
	if n == -2 || n == -3 { // EAI_NONAME, EAI_AGAIN
		return faultNetwork
	}
	return faultOther
}
