package termsafe

import "strings"

// The colors of text for people, as a terminal's sequences name them.
const (
	Bold       = "1"
	Faint      = "2"
	Red        = "31"
	Green      = "32"
	Yellow     = "33"
	Cyan       = "36"
	BoldRed    = "1;31"
	BoldYellow = "1;33"
	BoldBlue   = "1;34"
)

// Paint returns the text in a color if on is true. Blank text stays as it is, and a newline at the end stays behind the
// color. Paint escapes nothing: see [Line].
func Paint(on bool, color, text string) string {
	if !on || color == "" || strings.TrimSpace(text) == "" {
		return text
	}
	line, end := text, ""
	if cut, ok := strings.CutSuffix(text, "\n"); ok {
		line, end = cut, "\n"
	}
	return "\x1b[" + color + "m" + line + "\x1b[m" + end
}
