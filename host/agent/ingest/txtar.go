package ingest

import (
	"strings"

	"golang.org/x/tools/txtar"
)

// txtarName is the name in a line like -- src/main.py --, "" for any other line.
func txtarName(line string) string {
	s, ok := strings.CutPrefix(line, "-- ")
	if !ok {
		return ""
	}
	if s, ok = strings.CutSuffix(s, " --"); !ok {
		return ""
	}
	return strings.TrimSpace(s)
}

// txtar reads an archive as cmd/go and testscript have them. A file that was itself part of prose ends with the answer.
func (p *parser) txtar(src source) {
	a := txtar.Parse([]byte(src.text()))
	if len(a.Files) == 0 {
		p.fail(src.first, "there is no file in the answer", "a file begins with a line like -- src/main.py --")
		return
	}
	for line := range strings.Lines(string(a.Comment)) {
		p.statement(line)
	}
	line := src.first + strings.Count(string(a.Comment), "\n")
	for _, f := range a.Files {
		p.file(File{Path: f.Name, Content: f.Data, Line: line + 1})
		line += 1 + strings.Count(string(f.Data), "\n")
	}
}
