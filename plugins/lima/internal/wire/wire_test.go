package wire

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestHello(t *testing.T) {
	want := &Hello{Version: Version, Arch: "amd64", User: "me", UID: 1000, Home: "/home/me.guest"}
	var b bytes.Buffer
	b.WriteString("Welcome!\nnot " + Magic[:4] + "\nprompt> ")
	if err := WriteHello(&b, want); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\x00what follows")
	got, noise, err := ReadHello(iotest.OneByteReader(&b))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if noise != "Welcome!\nnot hutc\n" {
		t.Errorf("noise %q", noise)
	}
	if rest, _ := io.ReadAll(&b); string(rest) != "\x00what follows" {
		t.Errorf("it has read too far: %q is left", rest)
	}
	for name, text := range map[string]string{
		"nothing": "", "another program": "bash: hutch: not found\n", "no JSON": Magic + "x\n", "cut": Magic + `{"version":1`,
		"noise without end": strings.Repeat("a\n", maxNoise), "a line without end": strings.Repeat("a", maxHello+2),
	} {
		if _, _, err := ReadHello(strings.NewReader(text)); err == nil {
			t.Errorf("%s was taken for a greeting", name)
		}
	}
}

func TestLines(t *testing.T) {
	var b bytes.Buffer
	want := Request{Op: OpExec, ID: "a", Exec: &Exec{Argv: [][]byte{[]byte("\xff\x00"), {}, []byte(strings.Repeat("x", 1<<20))}, Env: [][]byte{}, Dir: []byte("/")}}
	if err := Send(&b, want); err != nil {
		t.Fatal(err)
	}
	b.WriteString("raw\ndata")
	l := NewLines(&b)
	var got Request
	if err := l.Next(&got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("op %s, id %s, and %+v came back", got.Op, got.ID, got.Exec != nil)
	}
	if rest, _ := io.ReadAll(l.Rest()); string(rest) != "raw\ndata" {
		t.Errorf("rest %q", rest)
	}
	if err := NewLines(strings.NewReader(`{"op":"exec"`)).Next(&got); err != io.ErrUnexpectedEOF {
		t.Errorf("half a line: %v", err)
	}
	if err := NewLines(strings.NewReader("")).Next(&got); err != io.EOF {
		t.Errorf("no line: %v", err)
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"op":"exec","exec":{"argv":["YQ=="]}}` + "\nrest"))
	f.Add([]byte(Magic + `{"version":1}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := NewLines(bytes.NewReader(b))
		var r Request
		if l.Next(&r) == nil { // what was understood is said again in the same way
			var again bytes.Buffer
			if err := Send(&again, r); err != nil {
				t.Fatal(err)
			}
			var twice Request
			if err := NewLines(&again).Next(&twice); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r, twice); diff != "" {
				t.Errorf("-first +second:\n%s", diff)
			}
		}
		if h, _, err := ReadHello(bytes.NewReader(b)); err == nil && h == nil {
			t.Error("neither a greeting nor an error")
		}
	})
}

func FuzzHello(f *testing.F) {
	for _, s := range []string{"noise\n" + Magic + `{"version":1,"limits":{"memory":{"By":"x"}},"size":{"memory":1}}` + "\nrest", Magic + "{}\n", Magic + "\n", "\n\n", Magic + Magic + "{}\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		in := strings.NewReader(s)
		h, noise, err := ReadHello(in)
		if (h == nil) != (err != nil) || len(noise) > maxNoise+maxHello+1 {
			t.Fatalf("%v, %d bytes of noise, %v", h, len(noise), err)
		}
		if read := s[:len(s)-in.Len()]; err == nil && !strings.HasSuffix(read, "\n") {
			t.Fatalf("it read %q", read)
		}
	})
}
