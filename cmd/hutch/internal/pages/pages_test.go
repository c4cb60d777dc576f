package pages

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

type sample struct {
	Do doCmd `cmd:"" help:"Do it."`
	Of struct {
		Inner struct{} `cmd:"" help:"Inside."`
	} `cmd:"" help:"A group."`
	Secret struct{} `cmd:"" hidden:"" help:"Not shown."`
}

type doCmd struct {
	What  []string `arg:"" help:"What to do."`
	Mode  string   `short:"m" enum:"fast,slow" default:"fast" placeholder:"MODE" help:"fast or slow | both."`
	Force bool     `help:"Even so."`
}

func (*doCmd) Help() string {
	return "A paragraph\nof two lines.\n\n    .code that begins with a dot\n    -x \\n\n\nThe end."
}

func model(t *testing.T) *kong.Node {
	t.Helper()
	k, err := kong.New(&sample{}, kong.Name("prog"), kong.Description("prog does things."))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model.Node
}

func TestHelpFitsTheTerminal(t *testing.T) {
	for _, width := range []int{0, 50, 80, 200} {
		var b strings.Builder
		if err := Help(&b, model(t).Children[0], width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if limit := map[bool]int{true: 80, false: min(width, 110)}[width == 0]; len(strings.TrimRight(line, "\n")) > limit {
				t.Errorf("width %d: %q", width, line)
			}
		}
		for _, want := range []string{"Usage: prog do [flags] WHAT...", "A paragraph of two lines.", "  .code that", "-m, --mode MODE", "--force"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("width %d: no %q in\n%s", width, want, &b)
			}
		}
	}
}

func TestHelpOfGroups(t *testing.T) {
	var b strings.Builder
	if err := Help(&b, model(t), 80); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "of  A group.") || strings.Contains(b.String(), "secret") {
		t.Errorf("got\n%s", &b)
	}
}

func TestMan(t *testing.T) {
	pages := Man(model(t))
	for name, want := range map[string][]string{
		"prog": {".TH PROG 1\n", "prog \\- does things\n", ".BR prog\\-do (1)\nDo it.\n", ".BR prog\\-of (1)\n"},
		"prog-do": {".TH PROG\\-DO 1\n", "prog\\-do \\- Do it\n", "\\&.code that begins with a dot\n\\-x \\en\n",
			".B \\-m, \\-\\-mode MODE\n"},
		"prog-of": {".B prog of inner\n", ".SS prog of inner\nInside.\n"},
	} {
		for _, w := range want {
			if !strings.Contains(pages[name], w) {
				t.Errorf("no %q in %s\n%s", w, name, pages[name])
			}
		}
	}
	if len(pages) != 3 || strings.Contains(pages["prog"], "secret") {
		t.Errorf("there are %d pages, or a hidden command is shown in\n%s", len(pages), pages["prog"])
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	if err := Markdown(&b, model(t)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- [`prog of inner`](#prog-of-inner): Inside.\n", "| `-m, --mode MODE` | fast or slow \\| both. |\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestCompletionOfUnknownShell(t *testing.T) {
	if err := Completion(&strings.Builder{}, model(t), "tcsh"); err == nil || !strings.Contains(err.Error(), "bash, zsh, fish") {
		t.Errorf("got %v", err)
	}
}
