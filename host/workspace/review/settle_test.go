package review

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// letters is a file of the letters, one a line, with some replaced.
func letters(replace ...string) string {
	text := strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz", ""), "\n") + "\n"
	return strings.NewReplacer(replace...).Replace(text)
}

// disputed is a project in which both sides changed text, in different places, and gone and made in other ways; fine
// was changed in the sandbox alone.
func disputed(t *testing.T) *fixture {
	f := newFixture(t, "text="+letters(), "gone=g\n", "fine=f\n")
	f.tick()
	f.write("text="+letters("c\n", "sandbox\n"), "made=sandbox\n", "fine=F\n")
	f.remove("gone")
	f.seal()
	plant(t, f.project, "text="+letters("x\n", "project\n"), "gone=changed\n", "made=project\n")
	return f
}

// blocked is what keeps all of a review from being applied.
func (f *fixture) blocked() []string {
	f.t.Helper()
	r := f.open()
	defer r.Close()
	_, err := r.Plan(f.t.Context(), r.All(), Policy{})
	var b *BlockedError
	if !errors.As(err, &b) {
		return nil
	}
	var list []string
	for _, c := range b.Conflicts {
		list = append(list, c.Path)
	}
	return list
}

// settled applies picks.
func (f *fixture) settled(r *Review, picks []Pick, o Policy) {
	f.t.Helper()
	p, err := r.Plan(f.t.Context(), picks, o)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.ledger.Apply(f.t.Context(), r, p); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) read(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(f.project + "/" + name)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestConflictsAreExplained checks what is shown of both sides.
func TestConflictsAreExplained(t *testing.T) {
	f := disputed(t)
	r := f.open()
	got := map[string][]string{}
	for _, c := range r.Changes {
		if c.Conflict == "" {
			continue
		}
		lines, err := r.Explain(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range lines {
			if at := strings.Index(l, ", written 2"); at >= 0 {
				lines[i] = l[:at] + l[at+len(", written 2006-01-02 15:04:05"):]
			}
		}
		got[c.Path] = lines
	}
	want := map[string][]string{
		"gone": {"project: 8 bytes, mode 0644: " + f.project + "/gone", "sandbox: nothing", "when the sandbox was made: 2 bytes, mode 0644"},
		"made": {"project: 8 bytes, mode 0644: " + f.project + "/made", "sandbox: 8 bytes, mode 0644: hutch fs read box made",
			"between the two: 1 hunk, +1 -1 from the project's to the sandbox's: hutch diff box made"},
		"text": {"project: 58 bytes, mode 0644: " + f.project + "/text", "sandbox: 58 bytes, mode 0644: hutch fs read box text", "when the sandbox was made: 52 bytes, mode 0644",
			"between the two: 2 hunks, +2 -2 from the project's to the sandbox's: hutch diff box text",
			"they cannot be merged: git does not have it as it was when the sandbox was made; what is to be merged must be committed, or added with git add, before a sandbox is made"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	d, err := r.Document(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Changes {
		if (c.Sides != nil) != (c.Conflict != "") || c.Path == "text" && (!c.Sides.BaseKnown || c.Sides.Base.Size != 52 || c.Sides.Sandbox.Modified == nil) {
			t.Errorf("%s: %+v", c.Path, c.Sides)
		}
	}
}

// TestSettle takes the sandbox's version where that is said, and nowhere else; an undo makes it a conflict again.
func TestSettle(t *testing.T) {
	f := disputed(t)
	if d := cmp.Diff([]string{"gone", "made", "text"}, f.blocked()); d != "" {
		t.Fatalf("in conflict (-want +got):\n%s", d)
	}
	before := pictureOf(f.project, true)
	r := f.open()
	if _, err := r.Settle(r.All(), []string{"fine"}); err == nil || !strings.Contains(err.Error(), "fine is not in conflict") {
		t.Errorf("a path that is in no conflict: %v", err)
	}
	if _, err := r.Settle(r.All(), []string{"../x"}); err == nil {
		t.Error("a path outside of the project")
	}
	picks, err := r.Settle(r.All(), []string{"text", "/workspace/gone"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Plan(t.Context(), picks, Policy{}); err == nil {
		t.Error("made was not settled, and no conflict is reported")
	}
	f.settled(r, picks, Policy{Partial: true})
	if got := flat(t, f.project); got != "fine=F\n made=project\n text="+letters("c\n", "sandbox\n") {
		t.Errorf("the project has %q", got)
	}
	if d := cmp.Diff([]string{"made"}, f.blocked()); d != "" {
		t.Errorf("in conflict after that (-want +got):\n%s", d)
	}
	if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, pictureOf(f.project, true)); d != "" {
		t.Errorf("after the undo (-before +after):\n%s", d)
	}
	if d := cmp.Diff([]string{"gone", "made", "text"}, f.blocked()); d != "" {
		t.Errorf("in conflict after the undo (-want +got):\n%s", d)
	}
}

// TestSettleByHunks merges: the sandbox's hunk is taken and the project's own stays. What remains is in conflict as
// before, so that the next apply of everything does not take back what the project's side changed.
func TestSettleByHunks(t *testing.T) {
	for _, how := range []string{"numbers", "answers"} {
		t.Run(how, func(t *testing.T) {
			f := disputed(t)
			r := f.open("text")
			var picks []Pick
			var err error
			if how == "numbers" {
				picks, err = r.PickHunks(t.Context(), []HunkRef{{"text", []int{1}}})
			} else {
				var out strings.Builder
				a := &Asker{In: bufio.NewReader(strings.NewReader("y\nn\n")), Out: &out}
				picks, err = a.Ask(t.Context(), r)
				for _, want := range []string{"conflict: text: it was changed in the project", "  sandbox: 58 bytes", "may take back what the project's side changed", "(2/2) Apply this hunk"} {
					if !strings.Contains(out.String(), want) {
						t.Errorf("it does not say %q:\n%s", want, &out)
					}
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			f.settled(r, picks, Policy{})
			merged := letters("c\n", "sandbox\n", "x\n", "project\n")
			if got := f.read("text"); got != merged {
				t.Errorf("the project has %q", got)
			}
			if d := cmp.Diff([]string{"gone", "made", "text"}, f.blocked()); d != "" {
				t.Errorf("in conflict after that (-want +got):\n%s", d)
			}
		})
	}
}
