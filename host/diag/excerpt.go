package diag

import (
	"bytes"
	"unicode/utf8"
)

const (
	excerptLines = 3   // marked lines shown; the rest are counted in Snippet.More
	excerptWidth = 400 // bytes of one line kept around its mark
)

// Excerpt cuts the lines of r out of src. It returns nil when r does not lie in src. The text of a Line is always
// valid UTF-8 and bounded, however long the line in the file is.
func Excerpt(src []byte, r Range) *Snippet {
	start, end := r.Start.Byte, r.End.Byte
	if start < 0 || start > len(src) || r.Start.Line < 1 {
		return nil
	}
	end = min(max(end, start), len(src))
	s := &Snippet{}
	lineStart := bytes.LastIndexByte(src[:start], '\n') + 1
	for number := r.Start.Line; ; number++ {
		lineEnd := len(src)
		if i := bytes.IndexByte(src[lineStart:], '\n'); i >= 0 {
			lineEnd = lineStart + i
		}
		text := bytes.TrimSuffix(src[lineStart:lineEnd], []byte("\r"))
		if len(s.Lines) == excerptLines {
			s.More = bytes.Count(bytes.TrimSuffix(src[lineStart:end], []byte("\n")), []byte("\n")) + 1
			return s
		}
		from := min(max(start-lineStart, 0), len(text))
		to := min(max(end-lineStart, from), len(text))
		if number > r.Start.Line { // do not mark the indentation of further lines
			from = min(len(text)-len(bytes.TrimLeft(text, " \t")), to)
		}
		s.Lines = append(s.Lines, cutLine(number, text, from, to))
		lineStart = lineEnd + 1
		if lineStart >= end || lineStart > len(src) {
			return s
		}
	}
}

// cutLine makes a Line that is valid UTF-8 and not longer than excerptWidth and two ellipses.
func cutLine(number int, text []byte, from, to int) Line {
	var lead, trail string
	if len(text) > excerptWidth {
		lo := min(max(from-excerptWidth/4, 0), len(text)-excerptWidth)
		hi := lo + excerptWidth
		// Not through the middle of a character; in what is no UTF-8 there may be no start of one far and wide.
		for n := 1; n < utf8.UTFMax && lo > 0 && !utf8.RuneStart(text[lo]); n++ {
			lo--
		}
		for n := 1; n < utf8.UTFMax && hi < len(text) && hi > from && !utf8.RuneStart(text[hi]); n++ {
			hi--
		}
		if lo > 0 {
			lead = "…"
		}
		if hi < len(text) {
			trail = "…"
		}
		text, from, to = text[lo:hi], from-lo, max(min(to, hi), from)-lo
	}
	before, marked, after := valid(text[:from]), valid(text[from:to]), valid(text[to:])
	return Line{
		Number: number, Text: lead + before + marked + after + trail,
		MarkStart: len(lead) + len(before), MarkEnd: len(lead) + len(before) + len(marked),
	}
}

func valid(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }
