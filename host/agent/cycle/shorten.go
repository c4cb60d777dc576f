package cycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/termsafe"
)

// room is what is known of how long a conversation the model takes.
type room struct {
	window  int     // tokens of a request and its answer; 0 is not known
	answer  int     // tokens that an answer may have
	ratio   float64 // tokens of a byte, by the last answer
	refused int     // bytes of the shortest conversation that the provider refused for its length, or 0
}

// leastRatio is how many tokens a byte is at least: few texts have fewer, and some servers do not count what they had
// cached.
const leastRatio = 0.25

// measure learns from an answer how many tokens a byte is.
func (m *room) measure(r model.Request, u model.Usage) {
	m.ratio = max(leastRatio, float64(u.InputTokens)/float64(r.Size()))
}

// bytes is how long a conversation may be; 0 is as long as it likes.
func (m *room) bytes() int {
	most := 0
	if m.window > 0 {
		most = int(float64(m.window-min(m.answer, m.window/2)) / max(leastRatio, m.ratio))
	}
	if m.refused > 0 && (most == 0 || m.refused <= most) {
		most = m.refused - 1
	}
	return most
}

// fit takes out of the conversation what it must to be no longer than the model takes, and returns how many bytes that
// were.
func (w *coding) fit() int {
	r, saved := fit(w.req, w.room.bytes())
	w.req = r
	return saved
}

// tooLong takes in why there was no answer, and reports whether a shorter conversation may get one.
func (w *coding) tooLong(err error) bool {
	var e *model.Error
	if !errors.As(err, &e) || e.Kind != model.KindTooLong {
		return false
	}
	w.room.refused = w.req.Size()
	_, saved := fit(w.req, w.room.bytes())
	return saved > 0
}

// worth is how long a text is, in bytes, that is worth being taken out.
const worth = 512

// fit makes a conversation longer than most shorter, and returns how many bytes it took out. It begins with what is
// oldest and goes further than it must, down to two thirds, because providers keep the beginning of a conversation
// cached as long as it stays the same. The task, all that the model said, and the newest exchange stay, and every call
// its result; only what tools answered just now is cut at its end, where nothing else helps. What r shares with others
// is not changed.
func fit(r model.Request, most int) (model.Request, int) {
	before := r.Size()
	if most <= 0 || before <= most {
		return r, 0
	}
	r.Messages = slices.Clone(r.Messages)
	newest := len(r.Messages)
	for newest > 0 && r.Messages[newest-1].Role != model.RoleAssistant {
		newest--
	}
	newest-- // the model's last answer; what came after it, it has not read
	now := before
	for i := 1; i < newest && now > most/3*2; i++ {
		m := taken(r.Messages[i])
		now -= r.Messages[i].Size() - m.Size()
		r.Messages[i] = m
	}
	if last := len(r.Messages) - 1; now > most && r.Messages[last].Role == model.RoleTool {
		m := cutOff(r.Messages[last], now-most/3*2)
		now -= r.Messages[last].Size() - m.Size()
		r.Messages[last] = m
	}
	return r, before - now
}

// taken is a message without the long answers of tools, and the long arguments of calls, that are in it.
func taken(m model.Message) model.Message {
	m.Results, m.Calls = slices.Clone(m.Results), slices.Clone(m.Calls)
	for i, t := range m.Results {
		if len(t.Text) > worth {
			m.Results[i].Text = fmt.Sprintf("(hutch took out this answer of %d bytes, because the conversation became too "+
				"long for you; if you need it, call the tool again)", len(t.Text))
		}
	}
	for i, c := range m.Calls {
		m.Calls[i].Arguments = shortArguments(c.Arguments)
	}
	return m
}

// shortArguments are the arguments of a call without their long texts. What is no JSON object stays.
func shortArguments(args string) string {
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader([]byte(args)))
	d.UseNumber()
	if len(args) <= worth || d.Decode(&all) != nil {
		return args
	}
	var short func(v any) any
	short = func(v any) any {
		switch v := v.(type) {
		case string:
			if len(v) > worth {
				return fmt.Sprintf("(the call was made with %d bytes here, which hutch took out, because the conversation "+
					"became too long for you)", len(v))
			}
		case []any:
			for i := range v {
				v[i] = short(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = short(v[k])
			}
		}
		return v
	}
	b, err := json.Marshal(short(all))
	if err != nil || len(b) >= len(args) {
		return args
	}
	return string(b)
}

// cutOff takes so many bytes off the ends of a message's results, the longest of them, or as many as there are.
func cutOff(m model.Message, excess int) model.Message {
	m.Results = slices.Clone(m.Results)
	for excess > 0 {
		longest := 0
		for i, t := range m.Results {
			if len(t.Text) > len(m.Results[longest].Text) {
				longest = i
			}
		}
		t := &m.Results[longest]
		if len(t.Text) <= worth {
			break
		}
		was := len(t.Text)
		const note = "…\n(hutch cut this answer off here, because the conversation is too long for you; ask for less at " +
			"once)"
		t.Text = strings.TrimSuffix(termsafe.Clip(t.Text, max(worth, was-excess)-len(note)), "…") + note
		excess -= was - len(t.Text)
	}
	return m
}
