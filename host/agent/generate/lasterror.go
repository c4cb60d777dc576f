package generate

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/run/language"
)

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
