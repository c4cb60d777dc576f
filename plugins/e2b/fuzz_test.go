package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// FuzzSaved loads what was written down of a sandbox, and writes down again what it took.
func FuzzSaved(f *testing.F) {
	for _, s := range []string{
		`{"Owner":"o","Spec":{"Config":{"Template":"t"},"Limits":{"Memory":1}},"Base":{"entries":[{"path":"YQ==","link":"/w==","mode":134218239}]}}`,
		`{"Base":{"entries":[{"path":"Li4vYQ=="}]}}`, `{"Spec":{"Config":null},"Base":{}}`, `{}`, `null`,
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, savedName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, again := &sandbox{id: "x", dir: dir}, &sandbox{id: "x", dir: dir}
		if s.load() != nil {
			return
		}
		for name := range s.base.Entries {
			if !isBelow(name) {
				t.Errorf("the path %q", name)
			}
		}
		configOf(&s.spec).APIKey = ""
		if err := s.save(); err != nil {
			t.Fatal(err)
		}
		if err := again.load(); err != nil || !cmp.Equal(s.spec, again.spec) || !cmp.Equal(s.base, again.base, cmp.AllowUnexported(entry{})) {
			t.Errorf("%v %s", err, cmp.Diff(s.spec, again.spec))
		}
	})
}

// FuzzSign cuts what a command's starter says wherever it likes: the same gets through.
func FuzzSign(f *testing.F) {
	for _, s := range []string{"SIGN0:;out", "nice: SIGSIGN127:not there;", "SIGN-1:;", "SIGN300:x;y", "SIGN0", "SIGN;"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, cut int) {
		if cut < 0 || cut > len(s) || len(s) > 60<<10 {
			return
		}
		hear := func(pieces ...string) (*running, string) {
			r := &running{c: &sdk.Command{Started: func() {}}, job: &job{sign: "SIGN"}, begun: make(chan struct{})}
			got := ""
			for _, p := range pieces {
				got += string(r.unsign([]byte(p)))
			}
			return r, got
		}
		whole, want := hear(s)
		parts, got := hear(s[:cut], s[cut:])
		if got != want || parts.code != whole.code || parts.hasBegun() != whole.hasBegun() {
			t.Errorf("in pieces %q and %d, at once %q and %d", got, parts.code, want, whole.code)
		}
		if whole.signed && !whole.hasBegun() && (whole.code < 1 || whole.code > 255) {
			t.Errorf("a refusal with the code %d", whole.code)
		}
	})
}

// TestC1 keeps the control characters above DEL out of messages, as those below it.
func TestC1(t *testing.T) {
	if got := oneLine("a\r\nb\u009b31m\x1b\xff"); got != "a; b 31m ?" {
		t.Errorf("%q", got)
	}
	if err := checkMounts(&sdk.Spec{Mounts: []sdk.Mount{{Source: "/a", Target: "/a\u009b31m", ReadOnly: true}}}); err == nil {
		t.Error("the target of a mount holds a control character")
	}
}
