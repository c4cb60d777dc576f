package record

import (
	"fmt"
	"io"
	"strings"

	"github.com/hutch-run/hutch/host/agent/model"
)

// WriteTranscript writes what was said in a loop, in order, as it was said: the text of others is not escaped.
func (p *Past) WriteTranscript(w io.Writer) error {
	t := transcript{w: w}
	for _, c := range p.Calls {
		for _, m := range c.Asked {
			if m.Role == model.RoleUser {
				t.section("user", m.Text)
			}
		}
		head := fmt.Sprintf("model %d", c.N)
		switch {
		case c.Error != nil:
			t.section(head, "no answer ("+c.Error.Kind+"): "+c.Error.Message)
		case c.Answer != nil:
			t.section(head, c.Answer.Text)
		}
		for _, tool := range c.Tools {
			t.section("tool "+tool.Name, tool.Arguments)
			what := "result"
			if tool.IsError {
				what = "error"
			}
			t.section(what, tool.Result)
		}
	}
	return t.err
}

type transcript struct {
	w   io.Writer
	n   int
	err error
}

// section writes a headed text, with an empty line before all but the first.
func (t *transcript) section(head, text string) {
	if t.err != nil || text == "" {
		return
	}
	before := ""
	if t.n++; t.n > 1 {
		before = "\n"
	}
	_, t.err = fmt.Fprintf(t.w, "%s--- %s ---\n%s\n", before, head, strings.TrimSuffix(text, "\n"))
}
