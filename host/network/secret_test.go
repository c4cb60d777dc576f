package network

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network/intercept"
)

func TestSourceRead(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	environ := []string{"TOKEN=the-value=1", "EMPTY=", "SPACE=the value ", "PATH=" + os.Getenv("PATH")}
	for _, tt := range []struct {
		name string
		from Source
		want string
		bad  string
	}{
		{"variable", Source{Env: "TOKEN"}, "the-value=1", ""},
		{"no variable", Source{Env: "TOKE"}, "", "the variable TOKE is not set"},
		{"empty", Source{Env: "EMPTY"}, "", "the value is empty"},
		{"space", Source{Env: "SPACE"}, "", "spaces at an end"},
		{"file", Source{File: file("a", "the-value\r\n")}, "the-value", ""},
		{"two lines", Source{File: file("b", "the-value\n\n")}, "", "line breaks"},
		{"short", Source{File: file("c", "1234567\n")}, "", "less than 8 bytes"},
		{"long", Source{File: file("d", strings.Repeat("x", intercept.MaxValue+1))}, "", "more than 16384 bytes"},
		{"no file", Source{File: filepath.Join(dir, "nope")}, "", "no such file or directory"},
		{"directory", Source{File: dir}, "", "is a directory"},
		{"command", Source{Command: []string{"sh", "-c", "echo $TOKEN"}}, "the-value=1", ""},
		{"failing command", Source{Command: []string{"sh", "-c", "echo the-value; echo why >&2; exit 3"}}, "", "exit status 3: why"},
		{"no command", Source{Command: []string{"hutch-no-such-program"}}, "", "executable file not found"},
	} {
		got, err := tt.from.Read(t.Context(), environ)
		switch {
		case tt.bad == "" && (err != nil || got != tt.want):
			t.Errorf("%s: %q, %v", tt.name, got, err)
		case tt.bad != "" && (err == nil || !strings.Contains(err.Error(), tt.bad) || got != ""):
			t.Errorf("%s: %q, %v, want %s", tt.name, got, err, tt.bad)
		}
	}
}

func TestCommandIsKept(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	s := Source{Command: []string{"sh", "-c", "echo x >> " + count + "; echo the-value-$(wc -l < " + count + ")"}}
	for _, tt := range []struct {
		ttl  time.Duration
		want string
	}{{0, "the-value-1"}, {time.Hour, "the-value-2"}, {time.Hour, "the-value-2"}} {
		s.TTL = units.Duration(tt.ttl)
		if got, err := s.Read(t.Context(), os.Environ()); err != nil || got != tt.want {
			t.Errorf("%q, %v, want %q", got, err, tt.want)
		}
	}
}

func TestCommandEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = os.ReadFile(started)
		cancel()
	}()
	// The child of the shell has its output too.
	if _, err := (Source{Command: []string{"sh", "-c", "echo > " + started + "; sleep 1000; true"}}).Read(ctx, os.Environ()); err == nil {
		t.Error("no error")
	}
}

func TestParseSecret(t *testing.T) {
	for _, tt := range []struct {
		flag string
		want Secret
		bad  string
	}{
		{"TOKEN=env@api.example", Secret{Name: "TOKEN", From: Source{Env: "TOKEN"}, Hosts: []string{"api.example"}}, ""},
		{"TOKEN=env:OTHER@api.example,*.b.example:8443", Secret{Name: "TOKEN", From: Source{Env: "OTHER"}, Hosts: []string{"api.example", "*.b.example:8443"}}, ""},
		{"TOKEN=file:/a@b@api.example", Secret{Name: "TOKEN", From: Source{File: "/a@b"}, Hosts: []string{"api.example"}}, ""},
		{"TOKEN=ghp_secret@api.example", Secret{}, "a secret is named by where it is, not given"},
		{"TOKEN=ghp_secret", Secret{}, "no host"},
		{"TOKEN", Secret{}, "no host"},
		{"TO KEN=env@api.example", Secret{}, `invalid name "TO KEN"`},
		{"TOKEN=env@10.0.0.1", Secret{}, "is an address"},
		{"TOKEN=env@", Secret{}, "a rule is empty"},
	} {
		got, err := ParseSecret(tt.flag)
		if tt.bad != "" {
			if err == nil || !strings.Contains(err.Error(), tt.bad) || strings.Contains(err.Error(), "ghp_") {
				t.Errorf("%s: %v, want %s", tt.flag, err, tt.bad)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", tt.flag, err, diff)
		}
	}
}

func TestMisfit(t *testing.T) {
	secret := Secret{Name: "T", From: Source{Env: "T"}, Hosts: []string{"api.example", "*.files.example:8443"}}
	for _, tt := range []struct {
		n    Network
		env  map[string]string
		want string
	}{
		{filtered("api.example", "*.files.example"), nil, ""},
		{filtered("*.example"), nil, ""},
		{filtered("api.example:443", "*.files.example:8443"), nil, ""},
		{filtered("api.example:80", "*.files.example"), nil, "its host api.example is not in network.allow"},
		{filtered("api.example", "files.example"), nil, "its host *.files.example:8443 is not in network.allow"},
		{Network{Mode: sdk.NetworkFiltered, Allow: []string{"*.example"}, Deny: []string{"api.example"}}, nil, `its host api.example is denied by "api.example" in network.deny`},
		{Network{Mode: sdk.NetworkFull}, nil, ""},
		{Network{}, nil, "needs a network, but network.mode is \"none\""},
		{filtered("*.example"), map[string]string{"T": "x"}, "env sets T too"},
	} {
		if _, got, _ := tt.n.Misfit(secret, tt.env); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.n, got, tt.want)
		}
	}
}

func TestWithSecrets(t *testing.T) {
	file := filtered("a.example")
	file.Secrets = []Secret{{Name: "A", From: Source{Env: "A"}, Hosts: []string{"a.example"}}, {Name: "B", From: Source{Command: []string{"b"}, TTL: units.Duration(time.Hour)}, Hosts: []string{"a.example"}}}
	flags, err := Network{}.WithSecrets([]string{"A=env:X@a.example:8443", "C=env@c.example"})
	if err != nil {
		t.Fatal(err)
	}
	want := filtered("a.example", "a.example:8443", "c.example:443")
	want.Secrets = []Secret{file.Secrets[1], {Name: "A", From: Source{Env: "X"}, Hosts: []string{"a.example:8443"}}, {Name: "C", From: Source{Env: "C"}, Hosts: []string{"c.example"}}}
	got := file.With(flags)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(file.Secrets) != 2 || file.Secrets[0].From.Env != "A" {
		t.Errorf("the secrets of the file were changed: %v", file.Secrets)
	}
	b, err := json.Marshal(got)
	var back Network
	if err != nil || json.Unmarshal(b, &back) != nil || cmp.Diff(got, back) != "" {
		t.Errorf("%v: %s", err, b)
	}
	if _, err := (Network{Mode: sdk.NetworkNone}).WithSecrets([]string{"A=env@a.example"}); err == nil {
		t.Error("mode none takes a secret")
	}
}
