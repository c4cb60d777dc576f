package generate

import "strings"

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
				e = lastError{message: lines[k], file: place[1]}
				e.line = lineNumber(place[2])
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
			e.file = m[1]
			e.line = lineNumber(m[2])
			break
		}
	}
	if kind == "ModuleNotFoundError" {
		e.fault = faultMissing
		if m := pythonModule().FindStringSubmatch(e.message); m != nil {
			e.what = m[1]
		}
		return e, true
	}
	e.fault = faultOther
	for _, line := range chain {
		if f := pythonFault(line); f != faultOther {
			e.fault = f
			if m := quotedLast().FindStringSubmatch(line); m != nil && f == faultDenied {
				e.what = m[1]
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
	m := errno().FindStringSubmatch(line)
	if m == nil {
		return faultOther
	}
	switch m[1] {
	case "101", "110", "111", "113", "-2", "-3": // ENETUNREACH, ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH, EAI_NONAME, EAI_AGAIN
		return faultNetwork
	case "11":
		return faultProcesses
	case "12":
		return faultMemory
	case "1", "13", "30": // EPERM, EACCES, EROFS
		return faultDenied
	case "24":
		return faultFiles
	case "28", "122":
		return faultDisk
	}
	return faultOther
}
