package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCommandsInText parses every command line of hutch in the ```sh and ```console blocks of the pages, so that no
// page shows a flag or a command that is not there.
func TestCommandsInText(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```$")
	n := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md", "examples/*.hcl"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			if strings.HasSuffix(path, ".hcl") {
				for line := range strings.Lines(string(src)) {
					if rest, ok := strings.CutPrefix(line, "#   "); ok {
						lines = append(lines, rest)
					}
				}
			}
			for _, m := range block.FindAllStringSubmatch(string(src), -1) {
				lines = append(lines, strings.Split(m[1], "\n")...)
			}
			for _, line := range lines {
				for _, part := range strings.Split(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " | ") {
					if args, ok := strings.CutPrefix(part, "hutch "); ok {
						n++
						if err := understood(t, words(args)); err != nil {
							t.Errorf("%s: %s: %v", path, part, err)
						}
					}
				}
			}
		}
	}
	if n < 30 {
		t.Fatalf("found only %d command lines", n)
	}
}

// TestCommandsInHelp does the same with the examples in the help texts.
func TestCommandsInHelp(t *testing.T) {
	k, err := build(&grammar{}).of(newUI(os.Stdin, os.Stdout, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, node := range k.Model.Leaves(false) {
		for line := range strings.Lines(node.Detail) {
			if args, ok := strings.CutPrefix(line, "    hutch "); ok {
				n++
				if err := understood(t, words(args)); err != nil {
					t.Errorf("%s --help: %s: %v", node.FullPath(), strings.TrimSpace(line), err)
				}
			}
		}
	}
	if n < 15 {
		t.Fatalf("found only %d examples", n)
	}
}

func understood(t *testing.T, args []string) error {
	k, err := build(&grammar{}).of(newUI(os.Stdin, os.Stdout, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	c, err := arrange(k.Model.Node, args)
	if err != nil {
		return err
	}
	_, err = k.Parse(c.args)
	return err
}

// words splits a line as a shell does, as far as the pages need it: quotes, and an end at a redirection or a comment.
func words(line string) []string {
	var out []string
	var word strings.Builder
	var quote rune
	begun := false
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ' || c == '\n':
			if begun || word.Len() > 0 {
				if w := word.String(); w == ">" || w == "<" || w == "#" {
					return out
				}
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
		}
	}
	if begun || word.Len() > 0 {
		out = append(out, word.String())
	}
	return out
}
