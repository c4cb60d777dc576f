package terminal

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLabels(t *testing.T) {
	var out bytes.Buffer
	l := NewLabels([]string{"a", "long"}, false)
	a, b := l.Writer("a", &out), l.Writer("long", &out)
	for _, step := range []struct {
		w    interface{ Write([]byte) (int, error) }
		text string
	}{{a, "one\ntw"}, {b, "x\n"}, {a, "o\n\n"}, {b, "no end"}} {
		if _, err := step.w.Write([]byte(step.text)); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.Close()
	_ = b.Close()
	want := "a    | one\nlong | x\na    | two\na    | \nlong | no end\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Fatalf("(-want +got)\n%s", d)
	}
}

func TestLabelsColorIsOfTheName(t *testing.T) {
	var one, two bytes.Buffer
	l := NewLabels([]string{"a"}, true)
	_, _ = l.Writer("a", &one).Write([]byte("x\n"))
	_, _ = l.Writer("a", &two).Write([]byte("x\n"))
	if one.String() != two.String() || !strings.HasPrefix(one.String(), "\x1b[3") || !strings.HasSuffix(one.String(), "\x1b[0m x\n") {
		t.Fatalf("%q and %q", one.String(), two.String())
	}
}

func TestLabelsEndlessLine(t *testing.T) {
	var out bytes.Buffer
	w := NewLabels([]string{"a"}, false).Writer("a", &out)
	for range 10 {
		if _, err := w.Write(bytes.Repeat([]byte("y"), maxLine/4)); err != nil {
			t.Fatal(err)
		}
	}
	if held := len(w.(*labelWriter).line); held >= maxLine {
		t.Errorf("holds %d bytes back", held)
	}
	_ = w.Close()
	if got := strings.Count(out.String(), "y"); got != 10*(maxLine/4) {
		t.Errorf("%d bytes came out, want %d", got, 10*(maxLine/4))
	}
}

func TestLabelsNeverInterleave(t *testing.T) {
	var out bytes.Buffer // the labels' own lock is what makes it safe
	names := []string{"aaa", "bbb", "ccc"}
	l := NewLabels(names, false)
	var wg sync.WaitGroup
	for _, n := range names {
		wg.Go(func() {
			w := l.Writer(n, &out)
			defer w.Close()
			for i := range 500 {
				_, _ = fmt.Fprintf(w, "%s %d ", n, i)
				_, _ = fmt.Fprintf(w, "%s\n", strings.Repeat(n, 5))
			}
		})
	}
	wg.Wait()
	next := map[string]int{}
	for line := range strings.Lines(out.String()) {
		name := line[:3]
		if want := fmt.Sprintf("%s | %s %d %s\n", name, name, next[name], strings.Repeat(name, 5)); line != want {
			t.Fatalf("got %q, want %q", line, want)
		}
		next[name]++
	}
}
