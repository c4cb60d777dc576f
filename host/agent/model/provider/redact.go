package provider

import (
	"strings"

	"github.com/hutch-run/hutch/host/agent/model"
)

// redactor takes a key out of a text that comes in pieces. It holds back what may be the beginning of one.
type redactor struct {
	key  string
	out  func(string)
	held string
}

func (r *redactor) write(piece string) {
	if len(r.key) < 4 { // as model.Config.Redact
		r.out(piece)
		return
	}
	text := strings.ReplaceAll(r.held+piece, r.key, model.Redacted)
	hold := min(len(r.key)-1, len(text))
	for ; hold > 0 && !strings.HasPrefix(r.key, text[len(text)-hold:]); hold-- {
	}
	r.held = text[len(text)-hold:]
	if text = text[:len(text)-hold]; text != "" {
		r.out(text)
	}
}

// flush hands on what was held back and was no key.
func (r *redactor) flush() {
	if r.held != "" {
		r.out(r.held)
		r.held = ""
	}
}
