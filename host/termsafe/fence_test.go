package termsafe

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// orders are what each service would obey.
var orders = map[string][]string{
	"GitHub":   {"::error file=a::x", "::add-mask::a", "::stop-commands::x", "##[group]x"},
	"GitLab":   {"section_start:1560896352:x\r\x1b[0K", "section_end:1560896352:x"},
	"TeamCity": {"##teamcity[buildStatus text='x']"},
	"Azure":    {"##vso[task.setvariable variable=x]y", "##[error]x"},
}

// obeyed reports whether a runner would find an order. It is written as runners are, and not as Fence is: by line,
// blanks trimmed, with and without what cannot be seen and escape sequences.
func obeyed(d Dialect, text string) bool {
	for _, clean := range []func(string) string{
		func(s string) string { return s },
		func(s string) string { return invisible.Replace(s) },
		func(s string) string { return invisible.Replace(csi.ReplaceAllString(s, "")) },
		func(s string) string { return invisible.Replace(strands(s)) },
	} {
		for line := range strings.FieldsFuncSeq(clean(text), func(r rune) bool { return r == '\n' || r == '\r' }) {
			if d.Starts != "" && strings.HasPrefix(strings.TrimSpace(line), d.Starts) {
				return true
			}
			for _, m := range d.Marks {
				if strings.Contains(line, m) {
					return true
				}
			}
		}
	}
	return false
}

var invisible = strings.NewReplacer("\x1b", "", "\x00", "", "\u200b", "", "\u00ad", "", "\u200d", "", "\ufe0f", "", "\x07", "")

var (
	csi     = regexp.MustCompile("\x1b\\[[ -?]*[@-~]")
	strand  = regexp.MustCompile("\x1b\\][^\x07\x1b\r\n]*\x07")
	strands = func(s string) string { return csi.ReplaceAllString(strand.ReplaceAllString(s, ""), "") }
)

func TestS10(t *testing.T) {
	for _, d := range Dialects {
		for _, order := range orders[d.Name] {
			for name, text := range map[string]string{
				"plain":           order + "\n",
				"after a line":    "text\n" + order + "\n",
				"after a return":  "text\r" + order + "\r\n",
				"blanks before":   " \t\u00a0" + order + "\n",
				"a colour before": "\x1b[31m" + order + "\n",
				"hidden in it":    strings.Join(strings.Split(order, ""), "\u200b") + "\n",
				"colours in it":   strings.Join(strings.Split(order, ""), "\x1b[0m") + "\n",
				"in a title":      "\x1b]0;\n" + order + "\n",
				"twice":           order + order + "\n" + order,
			} {
				t.Run(d.Name+" "+order+" "+name, func(t *testing.T) {
					var control, whole bytes.Buffer
					if control.WriteString(text); !obeyed(d, control.String()) {
						t.Skip("no runner obeys this")
					}
					f := NewFence(&whole, []Dialect{d}, false)
					write(t, f, []byte(text))
					if obeyed(d, whole.String()) {
						t.Errorf("a runner obeys %q", whole.String())
					}
					if got := strings.ReplaceAll(whole.String(), " ", ""); got != strings.ReplaceAll(text, " ", "") {
						t.Errorf("more than a blank was put in: %q", whole.String())
					}
					for size := 1; size < 8; size++ { // every border between two writes
						var out bytes.Buffer
						f := NewFence(&out, []Dialect{d}, false)
						for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
							write(t, f, rest[:min(size, len(rest))])
						}
						if err := f.Close(); err != nil || out.String() != whole.String() {
							t.Errorf("in pieces of %d: %q, want %q", size, out.String(), whole.String())
						}
					}
				})
			}
		}
	}
}

// What is no order stays as it is, and each write is passed on at once.
func TestS10Untouched(t *testing.T) {
	for _, text := range []string{"std::string a::b\n", "# a ## b\n: x\n", "café \xff\xfe\n", "\x1b[31mred\x1b[0m\n", "section_startled: 1\n", "prompt ##"} {
		var out bytes.Buffer
		f := NewFence(&out, Dialects, false)
		write(t, f, []byte(text))
		if out.String() != text {
			t.Errorf("%q became %q", text, out.String())
		}
	}
}

func TestS10JSON(t *testing.T) {
	var out bytes.Buffer
	in := map[string]string{"text": "##vso[x]\n::error::\n##teamcity[x section_start:1"}
	if err := json.NewEncoder(NewFence(&out, Dialects, true)).Encode(in); err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["text"] != in["text"] {
		t.Errorf("%v %q", err, back)
	}
	for _, d := range Dialects {
		if obeyed(d, out.String()) {
			t.Errorf("%s obeys %s", d.Name, out.String())
		}
	}
}

func TestS10Random(t *testing.T) {
	pieces := []string{"::", ":", "#", "##", "[", "vso", "teamcity", "##vso[", "##teamcity[", "##[", "section_start:", "section_", "end:",
		" ", "\t", "\n", "\r", "\x1b[0m", "\x1b[", "\x1b]", "\x07", "\u200b", "\x00", "\xff", "é", "x", "error"}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		var in, out bytes.Buffer
		f := NewFence(&out, Dialects, false)
		for range rnd.IntN(12) {
			p := pieces[rnd.IntN(len(pieces))]
			in.WriteString(p)
			write(t, f, []byte(p))
		}
		for _, d := range Dialects {
			if obeyed(d, out.String()) {
				t.Fatalf("%s obeys %q, which was %q", d.Name, out.String(), in.String())
			}
		}
	}
}

func write(t *testing.T, f *Fence, p []byte) {
	t.Helper()
	if n, err := f.Write(p); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
}

func FuzzFence(f *testing.F) {
	for _, s := range []string{"::error::x", "##vso[x]", "\x1b]0;::x", "a\u200b:\u200b:x\n", "section_start:1:x", "##teamcity[x"} {
		f.Add([]byte(s), 2)
	}
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		size = max(1, size%16)
		var out bytes.Buffer
		w := NewFence(&out, Dialects, false)
		for i := 0; i < len(in); i += size {
			write(t, w, in[i:min(i+size, len(in))])
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for _, d := range Dialects {
			if obeyed(d, out.String()) {
				t.Fatalf("%s obeys %q, which was %q", d.Name, out.String(), in)
			}
		}
		if got, want := strings.ReplaceAll(out.String(), " ", ""), strings.ReplaceAll(string(in), " ", ""); got != want {
			t.Fatalf("%q became %q", in, out.String())
		}
	})
}
