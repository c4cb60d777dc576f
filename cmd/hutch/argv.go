package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// call is a command line as it was typed, in the order that the parser needs.
type call struct {
	args []string // for the parser: command, flags, operands
	tail []string // what stood after --; only for `hutch run` and `hutch exec`
	dash bool     // there was a --
}

// singleDash are the long flags that people coming from HCL tools write with one dash.
var singleDash = []string{"check", "diff", "recursive", "upgrade", "locked", "var", "var-file", "json", "help",
	"version", "auto-approve", "no-color"}

// arrange prepares a command line for the parser. The parser takes a command's operands only in one piece, so flags
// between and after them are moved in front; what stands after -- is kept apart when it is a program to run, because
// no flag of it is ours; and -check means --check, as terraform's users type it.
func arrange(app *kong.Node, argv []string) (*call, error) {
	c := &call{}
	node := app
	var flags, operands []string
	for i := 0; i < len(argv); i++ {
		a := argv[i]
		switch {
		case a == "--":
			c.dash = true
			rest := slices.Clone(argv[i+1:])
			if runsProgram(node) || wrapsProgram(node) || node.Name == "install" && node.Parent.Name == "mcp" ||
				node.Name == "exec" || node.Name == "agent" || node.Name == "start" && node.Parent.Name == "agent" ||
				node.Name == "acp" {
				c.tail = rest
			} else if len(rest) > 0 {
				operands = append(append(operands, "--"), rest...)
			}
			i = len(argv)
		case strings.HasPrefix(a, "-") && a != "-":
			a = twoDashes(a)
			if a == "--json" && printsJSON(node) {
				a = "--output=json"
			}
			if d := node.DefaultCmd; d != nil && a != "--help" && a != "-h" {
				c.args, flags, node = append(append(c.args, flags...), d.Name), nil, d
			}
			flags = append(flags, a)
			if takesValue(node, a) && i+1 < len(argv) {
				i++
				if argv[i] == "--" {
					return nil, fmt.Errorf("%s needs a value, and found -- instead", a)
				}
				flags = append(flags, argv[i])
			}
		default:
			child := childOf(node, a)
			if wrapsProgram(node) {
				c.tail, i = slices.Clone(argv[i:]), len(argv)
				continue
			}
			if child == nil || len(operands) > 0 {
				if node.Name == "exec" && len(operands) == 1 { // the command of the sandbox
					c.tail, i = slices.Clone(argv[i:]), len(argv)
					continue
				}
				operands = append(operands, a)
				if runsProgram(node) && len(operands) == 1 && startsProgram(a) { // the rest is the program's
					if c.tail = slices.Clone(argv[i+1:]); len(c.tail) > 0 && c.tail[0] == "--" {
						c.tail = c.tail[1:]
					}
					i = len(argv)
				}
				continue
			}
			// Flags before a command belong to its parents; keep them there.
			c.args = append(append(c.args, flags...), child.Name)
			flags, node = nil, child
		}
	}
	c.args = append(append(c.args, flags...), operands...)
	return c, nil
}

// runsProgram reports whether the operands of a command may be a program and its arguments.
func runsProgram(n *kong.Node) bool { return n.Name == "run" || n.Name == "observe" }

// wrapsProgram reports whether all operands of a command are a program and its arguments.
func wrapsProgram(n *kong.Node) bool { return n.Name == "wrap" }

// printsJSON reports whether a command has -o json.
func printsJSON(n *kong.Node) bool {
	return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool {
		return f.Name == "output" &&
			strings.Contains(f.Enum, "json")
	})
}

func childOf(n *kong.Node, name string) *kong.Node {
	for _, c := range n.Children {
		if c.Name == name || slices.Contains(c.Aliases, name) {
			return c
		}
	}
	return nil
}

func twoDashes(a string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(a, "-"), "=")
	if slices.Contains(singleDash, name) {
		return "-" + a
	}
	return a
}

// takesValue reports whether the next argument is the value of flag a: --flag of a kind with values and without =, or
// a cluster of short ones whose last one has none attached.
func takesValue(n *kong.Node, a string) bool {
	byName := func(match func(*kong.Flag) bool) *kong.Flag {
		for _, group := range n.AllFlags(false) {
			for _, f := range group {
				if match(f) {
					return f
				}
			}
		}
		return nil
	}
	if long, ok := strings.CutPrefix(a, "--"); ok {
		f := byName(func(f *kong.Flag) bool { return f.Name == long || slices.Contains(f.Aliases, long) })
		return f != nil && !f.IsBool() && !f.IsCounter()
	}
	shorts := []rune(a[1:])
	for i, s := range shorts {
		f := byName(func(f *kong.Flag) bool { return f.Short == s })
		if f == nil {
			return false
		}
		if !f.IsBool() && !f.IsCounter() {
			return i == len(shorts)-1
		}
	}
	return false
}
