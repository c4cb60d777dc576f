package model_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/provider"
)

// bound is how long a test waits for what must come.
const bound = 2 * time.Minute

// The test is hutch-agent too, and a hutch that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "model":
			note := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
			if err := provider.Run(os.Stdin, os.Stdout, note); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "hang": // with a script
			c, err := open(os.Args[2])
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			_, _ = c.Answer(context.Background(), hello, func(string) { fmt.Println(model.PID(c)) })
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

var hello = model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "hello"}}}

func open(script string) (model.Client, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := model.Config{Name: "m", Provider: model.Scripted, Script: script}
	return model.Start(context.Background(), exe, c.WithDefaults())
}

func client(t *testing.T, script string) model.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.txtar")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// gone waits until a process is no more, or only waits to be reaped.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(5 * time.Millisecond) {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			if i := bytes.LastIndexByte(stat, ')'); i > 0 && len(stat) > i+2 && stat[i+2] == 'Z' {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("process %d lives on", pid)
		}
	}
}

func TestProcess(t *testing.T) {
	c := client(t, "-- answer --\nfirst answer, in pieces of some length\n-- usage --\ninput 3 output 4\n"+
		"-- answer --\n-- call run_command --\n{\"command\": \"ls\"}\n-- usage --\ninput 5 output 6\n-- answer --\n-- fault --\nstatus 401\n")
	var pieces []string
	a, err := c.Answer(t.Context(), hello, func(s string) { pieces = append(pieces, s) })
	if err != nil {
		t.Fatal(err)
	}
	want := model.Answer{Text: "first answer, in pieces of some length", Stop: model.StopEnd,
		Usage: model.Usage{InputTokens: 3, OutputTokens: 4}, Model: "scripted", RequestID: "req-scripted-1"}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
	if len(pieces) < 2 || strings.Join(pieces, "") != want.Text {
		t.Errorf("%q", pieces)
	}
	a, err = c.Answer(t.Context(), hello, nil)
	if err != nil || a.Stop != model.StopTools || len(a.Calls) != 1 || a.Calls[0].Arguments != `{"command":"ls"}` {
		t.Errorf("%+v, %v", a, err)
	}
	var e *model.Error
	if _, err = c.Answer(t.Context(), hello, nil); !errors.As(err, &e) || e.Kind != model.KindAuth || e.Status != 401 {
		t.Errorf("%v", err)
	}
	pid := model.PID(c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	gone(t, pid)
	if _, err = c.Answer(t.Context(), hello, nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after the end: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestProcessCancel gives up a request, which ends the program.
func TestProcessCancel(t *testing.T) {
	c := client(t, "-- answer --\nhalf of this text is sent and then nothing more\n-- fault --\nstall\n-- answer --\nsecond\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("had enough")
	pid := model.PID(c)
	if _, err := c.Answer(ctx, hello, func(string) { cancel(why) }); !errors.Is(err, why) {
		t.Error(err)
	}
	gone(t, pid)
	if _, err := c.Answer(t.Context(), hello, nil); err == nil {
		t.Error("a program that is gone answers")
	}
}

// TestProcessTogether asks from many goroutines; the answers do not get mixed up.
func TestProcessTogether(t *testing.T) {
	c := client(t, strings.Repeat("-- answer --\nthe same for all\n", 10))
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if a, err := c.Answer(t.Context(), hello, func(string) {}); err != nil || a.Text != "the same for all" {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	wg.Wait()
}

// TestDiesWithHutch kills the process that started the program, in the middle of an answer.
func TestDiesWithHutch(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script.txtar")
	if err := os.WriteFile(script,
		[]byte("-- answer --\nhalf of this text is sent and then nothing more\n-- fault --\nstall\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "hang", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("%q", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	gone(t, pid)
}

// TestProgramDies says what the program said last.
func TestProgramDies(t *testing.T) {
	c := client(t, "-- answer --\nhalf of this text is sent and then nothing more\n-- fault --\nstall\n")
	pid := model.PID(c)
	_, err := c.Answer(t.Context(), hello, func(string) { _ = syscall.Kill(pid, syscall.SIGKILL) })
	var e *model.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, "hutch-agent does not work") ||
		!strings.Contains(e.Message, "killed") {
		t.Error(err)
	}
}

func TestNoStart(t *testing.T) {
	_, err := open(filepath.Join(t.TempDir(), "nothing.txtar"))
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	_, err = model.Start(t.Context(), "/bin/true", model.Config{})
	if err == nil || !strings.Contains(err.Error(), "hutch-agent does not work") {
		t.Errorf("%v", err)
	}
	var e *model.Error
	c := model.Config{Name: "m", Provider: model.OpenAI, Model: "x"}
	if _, err = model.Open(t.Context(), c); !errors.As(err, &e) || e.Kind != model.KindAuth ||
		!strings.Contains(e.Hint, "OPENAI_API_KEY") {
		t.Errorf("%v", err)
	}
	c.APIKey = "k"
	if _, err = model.Open(t.Context(), c); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestWhereTheKeyIs looks at the program's command line and environment.
func TestWhereTheKeyIs(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "hunter2")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.Start(t.Context(), exe, model.Config{Name: "m", Provider: model.OpenAI, Model: "x",
		APIKey: "hunter2", Log: filepath.Join(t.TempDir(), "log")}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"cmdline", "environ"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", model.PID(c), name))
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("there is no /proc here")
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("hunter2")) {
			t.Errorf("%s holds the key", name)
		}
	}
	if got := model.Environment([]string{"PATH=/bin", "OPENAI_API_KEY=x", "ANTHROPIC_AUTH_TOKEN=x", "https_proxy=p",
		"OPENAI_BASE_URL=x"}); !cmp.Equal(got, []string{"PATH=/bin", "https_proxy=p"}) {
		t.Errorf("%q", got)
	}
}

func TestConfigHoldsNoKey(t *testing.T) {
	c := model.Config{Name: "m", APIKey: "hunter2"}
	b, err := json.Marshal(map[string]any{"a": c, "b": &c})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(b), fmt.Sprint(c), fmt.Sprintf("%+v %#v", c, &c)} {
		if strings.Contains(text, "hunter2") {
			t.Error(text)
		}
	}
}
