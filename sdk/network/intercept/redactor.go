package intercept

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// pair is a text that must not reach the command, and what it gets in its place.
type pair struct{ value, placeholder string }

// forms are the ways in which a response may write value.
func forms(value, placeholder string) []pair {
	html, _ := json.Marshal(value) // a string always marshals
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value)
	quoted, bare := string(html), strings.TrimSuffix(plain.String(), "\n")
	var out []pair
	for _, form := range []string{value, quoted[1 : len(quoted)-1], bare[1 : len(bare)-1],
		strings.ReplaceAll(bare[1:len(bare)-1], "/", `\/`), url.QueryEscape(value), url.PathEscape(value)} {
		if p := (pair{form, placeholder}); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// redactString replaces in a whole text.
func redactString(s string, pairs []pair) string {
	if !slices.ContainsFunc(pairs, func(p pair) bool { return strings.Contains(s, p.value) }) {
		return s
	}
	r := newRedactor(pairs, 0)
	out := string(r.add([]byte(s)))
	return out + string(r.end())
}

// redactor replaces in a stream: the leftmost value, of those that begin at one place the longest. It holds back only
// what may be the beginning of a value.
type redactor struct {
	pairs []pair

	// early is the length below which such a beginning goes out at once: a message that ends with one must not wait for
	// the next message. The rest of the value is still replaced. 0: none goes out.
	early int

	held  []byte // a proper prefix of a value
	shown int    // how much of held has gone out
	next  []int  // of each pair: where its next value begins in the text at hand, len of it when nowhere
	out   []byte
}

// shownOfValue is what a stream may show of a value that comes in two pieces, plus one byte.
const shownOfValue = 4

func newRedactor(pairs []pair, early int) *redactor {
	return &redactor{pairs: pairs, early: early, next: make([]int, len(pairs))}
}

// add takes in p and returns what can go out, valid until the next call.
func (r *redactor) add(p []byte) []byte {
	if len(r.held) > 0 {
		p = append(r.held, p...)
	}
	return r.replace(p, false)
}

// end returns what was held back.
func (r *redactor) end() []byte { return r.replace(r.held, true) }

// replace returns what of text can go out, with its values replaced, and holds the rest, unless text is the last. The
// first r.shown bytes of text have gone out as they are.
func (r *redactor) replace(text []byte, last bool) []byte {
	r.out = r.out[:0]
	for i := range r.next {
		r.next[i] = -1
	}
	at, skip := 0, r.shown
	pass := func(to int) {
		r.out = append(r.out, text[min(max(at, skip), to):to]...)
	}
	wait := r.open(text, at, last)
	for {
		first, best := len(text), -1
		for i, p := range r.pairs {
			if r.next[i] < at {
				r.next[i] = len(text)
				if n := bytes.Index(text[at:], []byte(p.value)); n >= 0 {
					r.next[i] = at + n
				}
			}
			if n := r.next[i]; n < first || n == first && best >= 0 && len(p.value) > len(r.pairs[best].value) {
				first, best = n, i
			}
		}
		if best < 0 || first >= wait {
			break
		}
		pass(first)
		value, instead := r.pairs[best].value, r.pairs[best].placeholder
		if first < skip && len(instead) == len(value) {
			instead = instead[skip-first:] // lengths stay what they are
		}
		r.out = append(r.out, instead...)
		if at = first + len(value); wait < at {
			wait = r.open(text, at, last)
		}
	}
	pass(wait)
	shown := max(0, skip-wait)
	if rest := text[wait:]; len(rest) < r.early {
		r.out = append(r.out, rest[shown:]...)
		shown = len(rest)
	}
	r.held, r.shown = append([]byte(nil), text[wait:]...), shown
	return r.out
}

// open returns where, from at on, the text ends with a proper prefix of a value; len(text) when nowhere.
func (r *redactor) open(text []byte, at int, last bool) int {
	best := len(text)
	if last {
		return best
	}
	for _, p := range r.pairs {
		for i := max(at, len(text)-len(p.value)+1); i < best; i++ {
			if strings.HasPrefix(p.value, string(text[i:])) {
				best = i
			}
		}
	}
	return best
}
