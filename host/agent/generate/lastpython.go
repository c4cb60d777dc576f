package generate

import (
	"strconv"
	"strings"
	"syscall"
)

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
