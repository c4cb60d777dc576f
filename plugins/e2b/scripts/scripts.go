// Package scripts holds what is run inside a machine, in the language that every template speaks: POSIX shell, with the
// tools that setup.sh looks for. Arguments are positional, and paths among them are written by Quote.
package scripts

import (
	_ "embed" // for the scripts
	"fmt"
	"strings"
)

// The scripts. What each one does, and what its arguments are, stands at its top.
var (
	//go:embed setup.sh
	Setup string
	//go:embed place.sh
	Place string
	//go:embed list.sh
	List string
	//go:embed sums.sh
	Sums string
	//go:embed put.sh
	Put string
	//go:embed merge.sh
	Merge string
	//go:embed read.sh
	Read string
	//go:embed pack.sh
	Pack string
	//go:embed remove.sh
	Remove string
	//go:embed reset.sh
	Reset string
	//go:embed end.sh
	End string
	//go:embed watch.sh
	Watch string
	//go:embed job.sh
	Job string
)

// Exit codes by which the scripts say what is wrong. Those of the shell and its tools lie elsewhere.
const (
	NoTools   = 41 // the template lacks tools, which stderr names
	Damaged   = 42 // what arrived is not what was sent
	Missing   = 44 // there is nothing at the path
	NotFile   = 45 // it is no regular file
	Directory = 46 // it is a directory, and only a file may be
	NotDir    = 47 // it is no directory
	NoUser    = 48 // there is no such user
)

// Quote writes any bytes in a form that survives the daemon's protocol, which takes UTF-8 only. The scripts undo it
// with printf's %b.
func Quote(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '/', c == '.', c == '_', c == '-',
			c == '+', c == ',':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\0%03o`, c)
		}
	}
	return b.String()
}

// Literal writes a text as one word of a shell's program.
func Literal(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
