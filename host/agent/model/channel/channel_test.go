package channel

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	lines := []Line{
		{Version: Version, Config: json.RawMessage(`{"Name":"m"}`)}, {Ready: true}, {ID: 7, Request: json.RawMessage(`{"messages":[]}`)},
		{ID: 7, Delta: "a\nb\x00 é </script>"}, {ID: 7, Cancel: true}, {ID: 7, Delta: strings.Repeat("long ", 100_000)}, {ID: 7, Error: json.RawMessage(`{"kind":"auth"}`)},
	}
	var buf bytes.Buffer
	w := NewWriter(&buf)
	for _, l := range lines {
		if err := w.Write(l); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(&buf)
	for _, want := range lines {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last line: %v", err)
	}
}

func TestBadLines(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "EOF",
		`{"id":1`:                 "EOF", // cut off
		"\n":                      "makes no sense",
		"[]\n":                    "makes no sense",
		"{\"id\":\"one\"}\n":      "makes no sense",
		"{\"delta\":\"\xff\"}\n":  "not UTF-8",
		"{\"id\":1} {\"id\":2}\n": "makes no sense",
		strings.Repeat("x", 200):  "longer than 100",
		"{\"delta\":\"" + strings.Repeat("x", 200) + "\"}\n": "longer than 100",
	} {
		r := NewReader(strings.NewReader(in))
		r.max = 100
		if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, not %s", in, err, want)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"version\":1,\"config\":{}}\n{\"id\":1,\"request\":{}}\n"))
	f.Add([]byte("{\"id\":1,\"delta\":\"\\u0000\"}\n\n{"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		r.max = 1 << 16
		for range len(in) + 1 {
			l, err := r.Next()
			if err != nil {
				if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "longer than") {
					return
				}
				continue
			}
			var out bytes.Buffer
			if err := NewWriter(&out).Write(l); err != nil {
				t.Fatalf("%+v was read and cannot be written: %v", l, err)
			}
			again, err := NewReader(&out).Next()
			if err != nil || again.ID != l.ID || again.Delta != l.Delta || again.Cancel != l.Cancel {
				t.Fatalf("%+v became %+v, %v", l, again, err)
			}
		}
		t.Fatal("the reader does not come to an end")
	})
}
