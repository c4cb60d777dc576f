package generate

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

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

// lineNumber is 0 for a number that is no line of any file.
func lineNumber(s string) int {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
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

// nodeCodes are the codes of node's system errors.
var nodeCodes = map[string]fault{
	"MODULE_NOT_FOUND": faultMissing, "ERR_MODULE_NOT_FOUND": faultMissing,
	"ENOTFOUND": faultNetwork, "EAI_AGAIN": faultNetwork, "ENETUNREACH": faultNetwork, "ECONNREFUSED": faultNetwork, "EHOSTUNREACH": faultNetwork, "ETIMEDOUT": faultNetwork,
	"ENOMEM": faultMemory, "EAGAIN": faultProcesses, "EMFILE": faultFiles, "ENFILE": faultFiles, "ENOSPC": faultDisk, "EDQUOT": faultDisk,
	"EROFS": faultDenied, "EACCES": faultDenied, "EPERM": faultDenied,
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
			e.file = p[1]
			e.line = lineNumber(p[2])
			break
		}
	}
	codes := []string{m[2]}
	for _, line := range lines[at:] {
		if p := nodeStack().FindStringSubmatch(line); p != nil && e.file == "" {
			e.file = p[1]
			e.line = lineNumber(p[2])
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
		if f, ok := nodeCodes[c]; ok {
			e.fault = f
		}
	}
	switch e.fault {
	case faultMissing:
		if q := nodeModule().FindStringSubmatch(e.message); q != nil {
			e.what = q[1]
		}
	case faultDenied:
		if q := quotedLast().FindStringSubmatch(e.message); q != nil {
			e.what = q[1]
		}
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
		e := lastError{fault: goFault(line), message: line}
		for _, l := range lines[i:] {
			if p := goStack().FindStringSubmatch(l); p != nil && !strings.HasPrefix(p[1], "/usr/") {
				e.file = p[1]
				e.line = lineNumber(p[2])
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
		e := lastError{fault: faultSyntax, message: line, file: p[1]}
		e.line = lineNumber(p[2])
		if m := goMissing().FindStringSubmatch(p[3]); m != nil {
			e.fault, e.what = faultMissing, m[1]
		}
		return e, true
	}
	for i := len(lines) - 1; i >= 0; i-- { // log.Fatal has no form of its own, but system errors have
		if f := goFault(lines[i]); f != faultOther {
			return lastError{fault: f, message: lines[i]}, true
		}
	}
	return lastError{}, false
}

func goFault(line string) fault {
	switch {
	case strings.Contains(line, "dial tcp"), strings.Contains(line, "dial udp"):
		return faultNetwork
	case strings.HasSuffix(line, ": read-only file system"), strings.HasSuffix(line, ": permission denied"), strings.HasSuffix(line, ": operation not permitted"):
		return faultDenied
	case strings.HasSuffix(line, ": no space left on device"):
		return faultDisk
	case strings.HasSuffix(line, ": too many open files"):
		return faultFiles
	case strings.HasSuffix(line, ": resource temporarily unavailable"):
		return faultProcesses
	}
	return faultOther
}

// shellError reads the last message of the shell itself.
func shellError(lines []string) (lastError, bool) {
	for i := len(lines) - 1; i >= 0; i-- {
		p := shellPlace().FindStringSubmatch(lines[i])
		if p == nil {
			continue
		}
		e := lastError{fault: goFault(strings.ToLower(lines[i])), message: lines[i], file: p[1]}
		e.line = lineNumber(p[2])
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
		e := lastError{fault: faultOther, message: line, file: p[1]}
		e.line = lineNumber(p[2])
		kind, text := p[4], p[3]
		switch {
		case kind == "SyntaxError", strings.Contains(text, "syntax error"):
			e.fault = faultSyntax
		case kind == "LoadError":
			e.fault = faultMissing
			_, e.what, _ = strings.Cut(text, "cannot load such file -- ")
		case kind == "NoMemoryError":
			e.fault = faultMemory
		case kind == "SocketError", kind == "Socket::ResolutionError", strings.HasPrefix(kind, "Errno::E") && strings.Contains("Errno::ECONNREFUSED Errno::ENETUNREACH Errno::EHOSTUNREACH", kind):
			e.fault = faultNetwork
		case kind == "Errno::EROFS", kind == "Errno::EACCES", kind == "Errno::EPERM":
			e.fault = faultDenied
			_, e.what, _ = strings.Cut(text, " @ rb_sysopen - ")
		case kind == "Errno::ENOSPC":
			e.fault = faultDisk
		case kind == "Errno::EMFILE":
			e.fault = faultFiles
		}
		if own := rubyOwn(lines[i:]); own != nil {
			e.file = own[1]
			e.line = lineNumber(own[2])
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
		e := lastError{fault: faultOther, message: line, file: p[1]}
		e.line = lineNumber(p[2])
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
