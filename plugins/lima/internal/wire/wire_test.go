package wire

import (
	"bytes"
	"io"
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
