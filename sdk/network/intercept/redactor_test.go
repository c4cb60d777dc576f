package intercept

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var testPairs = []pair{{"s3cret-value", "<PLACE>"}, {"s3cret-value-long", "<LONG>"}, {"aabaab", "<A>"}, {"et-v", "<X>"}}

func stream(pairs []pair, early int, chunks ...string) string {
	r := newRedactor(pairs, early)
	var b strings.Builder
	for _, c := range chunks {
		b.Write(r.add([]byte(c)))
	}
	b.Write(r.end())
	return b.String()
}

func TestRedactor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		early  int
		chunks []string
		want   string
	}{
		{"whole", 0, []string{"a s3cret-value b"}, "a <PLACE> b"},
		{"in two chunks", 0, []string{"a s3cre", "t-value b"}, "a <PLACE> b"},
		{"byte by byte", 0, strings.Split("xs3cret-valuex", ""), "x<PLACE>x"},
		{"the longest of those that begin at one place", 0, []string{"s3cret-value", "-long"}, "<LONG>"},
		{"a longer one that ends otherwise", 0, []string{"s3cret-value", "-lost"}, "<PLACE>-lost"},
		{"a beginning that becomes nothing", 0, []string{"s3cre", "s3cret-valu"}, "s3cres3cr<X>alu"},
		{"overlapping itself", 0, []string{"aaba", "abaab"}, "<A>aab"},
		{"one inside of another that does not end", 0, []string{"s3cret-v", "x"}, "s3cr<X>x"},
		{"a short beginning goes out", 4, []string{"s3", "cret-value!"}, "s3<PLACE>!"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := stream(testPairs, tt.early, tt.chunks...); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRedactorWaitsForNoMessage(t *testing.T) {
	r := newRedactor(testPairs, shownOfValue)
	for _, message := range []string{"endss", "ending in s3c", "aa"} {
		if got := string(r.add([]byte(message))); !strings.HasSuffix(message, got[max(0, len(got)-3):]) || len(got) != len(message) {
			t.Errorf("of message %q went out %q", message, got)
		}
	}
}

// simple is the redactor without a stream.
func simple(s string, pairs []pair) string {
	pairs = slices.Clone(pairs)
	slices.SortStableFunc(pairs, func(a, b pair) int { return len(b.value) - len(a.value) })
	var b strings.Builder
next:
	for i := 0; i < len(s); {
		for _, p := range pairs {
			if strings.HasPrefix(s[i:], p.value) {
				b.WriteString(p.placeholder)
				i += len(p.value)
				continue next
			}
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

func checkRedactor(t interface{ Fatalf(string, ...any) }, pairs []pair, chunks []string) {
	text := strings.Join(chunks, "")
	if got, want := stream(pairs, 0, chunks...), simple(text, pairs); got != want {
		t.Fatalf("chunks %q: got %q, want %q", chunks, got, want)
	}
	var same []pair
	for _, p := range pairs {
		same = append(same, pair{p.value, strings.Repeat("*", len(p.value))})
	}
	got := stream(same, shownOfValue, chunks...)
	if len(got) != len(text) {
		t.Fatalf("chunks %q: got %q, of another length", chunks, got)
	}
	for i, c := range []byte(simple(text, same)) {
		if c != '*' && got[i] != c {
			t.Fatalf("chunks %q: got %q", chunks, got)
		}
	}
	for _, p := range same {
		if strings.Contains(got, p.value) {
			t.Fatalf("chunks %q: got %q, with a value in it", chunks, got)
		}
	}
	r := newRedactor(pairs, shownOfValue)
	for _, c := range chunks {
		r.add([]byte(c))
		if n := len(r.held); n > 0 && n < shownOfValue && r.shown != n {
			t.Fatalf("chunks %q: %q is held back", chunks, r.held)
		}
	}
}

func TestRedactorProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[ab]{4,9}`)
		var pairs []pair
		for _, v := range rapid.SliceOfNDistinct(value, 1, 4, rapid.ID[string]).Draw(t, "values") {
			pairs = append(pairs, pair{v, "<>"})
		}
		checkRedactor(t, pairs, rapid.SliceOf(rapid.StringMatching(`[abc]{0,12}`)).Draw(t, "chunks"))
	})
}

func FuzzRedactor(f *testing.F) {
	f.Add("xs3cret-valuexs3cret-value-longaabaabaab", uint(3))
	f.Fuzz(func(t *testing.T, text string, size uint) {
		var chunks []string
		for chunk := range slices.Chunk([]byte(text), int(size%40)+1) {
			chunks = append(chunks, string(chunk))
		}
		checkRedactor(t, testPairs, chunks)
	})
}
