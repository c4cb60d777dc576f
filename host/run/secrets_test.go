package run

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const secret = "hunter2-very-secret"

// A secret with characters that a quotation changes, and one that is too short to be looked for in text, in every place
// where a program or a message could bring them into the record.
func TestOddSecretsStayOutOfWhatIsWritten(t *testing.T) {
	w := newWorld(t, &plain{})
	r := w.run(`
variable "pw" {
  type      = string
  default   = "od\"d\\pass\tword"
  sensitive = true
}
variable "pin" {
  type      = string
  default   = "q7z"
  sensitive = true
}
run "r" {
  backend "plain" {}
  command = ["sh", "-c", "printf %s \"$1\"; cd $HUTCH_OUTPUT; echo made > \"$1.txt\"; ln -s / \"$1.link\"", "sh", var.pw, var.pin]
  outputs = ["*pass*"]
  expect {
    outputs = ["*pass*.txt", "nothing"]
    stdout {
      equals   = "x${var.pw}"
      contains = ["no ${var.pw}"]
      excludes = [var.pw]
      matches  = ["${var.pin}9"]
    }
  }
}`, Streams{})
	if len(r.ExpectFailures) != 6 || r.Stdout.Text != "(sensitive)" {
		t.Errorf("%q %+v %+v", r.Stdout.Text, r.ExpectFailures, r.Error)
	}
	if len(r.Outputs) != 0 { // a tab is not taken in a name, and the message about it reveals nothing
		t.Errorf("%+v", r.Outputs)
	}
	for _, name := range []string{"events.jsonl"} {
		b, err := os.ReadFile(filepath.Join(r.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"pass", "od\\\"d", `"q7z"`} {
			for line := range bytes.Lines(bytes.ReplaceAll(b, []byte("*pass*"), nil)) {
				if bytes.Contains(line, []byte(part)) {
					t.Errorf("%s holds %s: %.300s", name, part, line)
				}
			}
		}
	}
}

func TestOutputNamedByASecretIsCollectedUnderAnotherName(t *testing.T) {
	w := newWorld(t, &plain{})
	r := w.run(`
variable "pw" {
  type      = string
  default   = "`+secret+`"
  sensitive = true
}
run "r" {
  backend "plain" {}
  command = ["sh", "-c", "echo made > \"$HUTCH_OUTPUT/a $1.txt\"", "sh", var.pw]
  expect { outputs = ["a *very*.txt"] }
}`, Streams{})
	if !r.OK || len(r.Outputs) != 1 || r.Outputs[0].Path != "a (sensitive).txt" {
		t.Fatalf("%+v %+v", r.Outputs, r.ExpectFailures)
	}
	if b, err := os.ReadFile(filepath.Join(r.Dir, "output", r.Outputs[0].Path)); err != nil || string(b) != "made\n" {
		t.Errorf("%q %v", b, err)
	}
	for _, name := range []string{"events.jsonl"} {
		if b, err := os.ReadFile(filepath.Join(r.Dir, name)); err != nil || bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s %v: %s", name, err, b)
		}
	}
	if rep, err := w.store.Verify(context.Background(), r.ID); err != nil || !rep.OK {
		t.Errorf("%v %+v", err, rep)
	}
}

func TestSecretsStayOutOfWhatIsWritten(t *testing.T) {
	p := &plain{}
	w := newWorld(t, p)
	r := w.run(`
variable "pw" {
  type      = string
  default   = "`+secret+`"
  sensitive = true
}
run "r" {
  backend "plain" { token = var.pw }
  file "plain.txt" { content = "no secret" }
  file "key.txt"   { content = "key=${var.pw}\n" }
  command = ["sh", "-c", "cat $HUTCH_INPUT/key.txt $HUTCH_INPUT/plain.txt; echo $PW >&2; exit 4", "x${var.pw}"]
  env     = { PW = var.pw }
  expect {
    exit_code = 0
    stdout { contains = ["not ${var.pw}"] }
  }
}`, Streams{})
	if r.Status != 4 || r.Stdout.Text != "(sensitive)no secret" || r.Stderr.Text != "(sensitive)\n" {
		t.Errorf("%d %q %q %v", r.Status, r.Stdout.Text, r.Stderr.Text, r.Error)
	}
	if b, _ := os.ReadFile(filepath.Join(r.Dir, "stdout.log")); !strings.Contains(string(b), secret) {
		t.Errorf("the log is not what the program wrote: %q", b)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "code", "plain.txt")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.specs[0].Input); err == nil {
		t.Errorf("%s, which holds a secret, outlives the run", p.specs[0].Input)
	}
	var leaks []string
	err := filepath.WalkDir(filepath.Dir(filepath.Dir(r.Dir)), func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".log") {
			return err
		}
		b, err := os.ReadFile(name)
		if bytes.Contains(b, []byte(secret)) {
			leaks = append(leaks, name)
		}
		return err
	})
	if err != nil || len(leaks) > 0 {
		t.Errorf("%v: the secret is in %q", err, leaks)
	}
	pl, err := w.runner().Plan(context.Background(), w.load(`
variable "pw" {
  type      = string
  default   = "` + secret + `"
  sensitive = true
}
variable "pin" { # too short to be looked for inside of text
  type      = string
  default   = "zq7"
  sensitive = true
}
run "r" {
  backend "plain" {}
  command = ["echo", var.pw, var.pin]
  env     = { PW = var.pw, PIN = var.pin }
}`)[0])
	if err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(pl)
	var text bytes.Buffer
	if err2 := pl.WriteText(&text); err != nil || err2 != nil || strings.Contains(string(j)+text.String(), secret) || strings.Contains(string(j)+text.String(), "zq7") {
		t.Errorf("%v %v: the plan shows the secret: %s", err, err2, text.String())
	}
}
