package ingest

import (
	"strconv"
	"strings"
)

// hunks reads the hunks of one file.
func (r *diffReader) hunks() []Hunk {
	var out []Hunk
	for r.i < len(r.src.lines) {
		line := r.src.lines[r.i]
		if !strings.HasPrefix(line, "@@") {
			if strings.TrimSpace(line) == "" && r.i+1 < len(r.src.lines) && strings.HasPrefix(r.src.lines[r.i+1], "@@") {
				r.i++
				continue
			}
			break
		}
		h := Hunk{Line: r.line()}
		start, oldLines, newLines, counted := hunkHeader(line)
		h.Start = start
		r.i++
		n, exact := 0, false
		if counted {
			n, exact = r.counted(oldLines, newLines)
		}
		if !exact {
			n = r.bounded()
		}
		o, w := r.body(&h, r.src.lines[r.i:r.i+n])
		r.i += n
		if counted && (o != oldLines || w != newLines) {
			r.p.note("hunk in line %d of the answer: its header counts %d old and %d new lines, it has %d and %d",
				h.Line, oldLines, newLines, o, w)
		}
		if len(h.Lines) == 0 {
			r.p.fail(h.Line, "the hunk has no lines", "")
			continue
		}
		out = append(out, h)
	}
	return out
}

// hunkHeader reads @@ -1,2 +3,4 @@. Some leave the numbers out: then nothing is counted.
func hunkHeader(line string) (start, oldLines, newLines int, counted bool) {
	f := strings.Fields(line)
	if len(f) < 4 || f[0] != "@@" || f[1][0] != '-' || f[2][0] != '+' || !strings.HasPrefix(f[3], "@@") {
		return 0, 0, 0, false
	}
	start, oldLines, ok1 := rangeOf(f[1][1:])
	_, newLines, ok2 := rangeOf(f[2][1:])
	if !ok1 || !ok2 {
		return 0, 0, 0, false
	}
	if oldLines == 0 {
		start++ // the line after which something comes
	}
	return start, oldLines, newLines, true
}

func rangeOf(s string) (start, n int, ok bool) {
	a, b, more := strings.Cut(s, ",")
	start, err := strconv.Atoi(a)
	if err != nil || start < 0 || start > 1<<30 {
		return 0, 0, false
	}
	if !more {
		return start, 1, true
	}
	n, err = strconv.Atoi(b)
	return start, n, err == nil && n >= 0 && n <= 1<<30
}

// counted is how many lines a hunk has according to its header; exact says that this can be: the lines are there, and
// what follows is no line of a hunk.
func (r *diffReader) counted(oldLines, newLines int) (n int, exact bool) {
	lines := r.src.lines[r.i:]
	for n < len(lines) && (oldLines > 0 || newLines > 0) {
		switch line := lines[n]; {
		case line == "" || line[0] == ' ' || line == "\r":
			oldLines--
			newLines--
		case line[0] == '-':
			oldLines--
		case line[0] == '+':
			newLines--
		case line[0] == '\\':
		default:
			return 0, false
		}
		n++
	}
	for n < len(lines) && strings.HasPrefix(lines[n], `\`) {
		n++
	}
	if oldLines != 0 || newLines != 0 {
		return 0, false
	}
	if n == len(lines) || lines[n] == "-- " || diffNamesAt(lines, n) {
		return n, true
	}
	next := lines[n]
	return n, next == "" || next[0] != ' ' && next[0] != '+' && next[0] != '-'
}

func diffNamesAt(lines []string, i int) bool {
	return i+1 < len(lines) && strings.HasPrefix(lines[i], "--- ") && strings.HasPrefix(lines[i+1], "+++ ")
}

// bounded is how many lines a hunk has when its header is not to be believed.
func (r *diffReader) bounded() int {
	lines := r.src.lines[r.i:]
	n := 0
	for n < len(lines) && !diffHeaderAt(lines, n) &&
		(lines[n] == "" || lines[n] == "\r" || strings.IndexByte(" +-\\", lines[n][0]) >= 0) {
		n++
	}
	for n > 0 && strings.TrimRight(lines[n-1], "\r") == "" { // what follows the hunk, and no context
		n--
	}
	return n
}

// body takes in the lines of a hunk and counts them.
func (r *diffReader) body(h *Hunk, lines []string) (oldLines, newLines int) {
	last := byte(0)
	for _, line := range lines {
		if line == "" {
			line = " " // editors and models take away the blank of an empty line
		}
		switch op := line[0]; op {
		case '\\':
			h.OldNoEOL = h.OldNoEOL || last == '-' || last == ' '
			h.NewNoEOL = h.NewNoEOL || last == '+' || last == ' '
			continue
		case ' ', '-', '+':
			last = op
			h.Lines = append(h.Lines, HunkLine{op, line[1:]})
		default:
			last = ' '
			h.Lines = append(h.Lines, HunkLine{' ', line}) // a carriage return alone
		}
		if last != '+' {
			oldLines++
		}
		if last != '-' {
			newLines++
		}
	}
	return oldLines, newLines
}
