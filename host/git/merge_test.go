package git

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/gittest"
)

// TestMergePieces chooses one side at every place of random texts, and compares with what git makes of that choice.
func TestMergePieces(t *testing.T) {
	gittest.Need(t)
	rng := rand.New(rand.NewPCG(1, 2))
	lines := []string{"a", "b", "c", "d", "<<<<<<< ours", "=======", ">>>>>>> theirs", "||||||| base", "=========", ""}
	text := func(end string) string {
		var list []string
		for range rng.IntN(12) {
			list = append(list, lines[rng.IntN(len(lines))])
		}
		s := strings.Join(list, end)
		if rng.IntN(2) == 0 && s != "" {
			s += end
		}
		return s
	}
	overlaps := 0
	for i := range 120 {
		end := []string{"\n", "\r\n"}[i%2]
		base, dir := text(end), t.TempDir()
		change := func() string {
			if rng.IntN(3) == 0 {
				return text(end)
			}
			at := rng.IntN(len(base) + 1)
			at = strings.LastIndex(base[:at], "\n") + 1
			return base[:at] + text("\n") + base[at:]
		}
		sides := map[string]string{"ours": change(), "base": base, "theirs": change()}
		for name, s := range sides {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pieces, err := MergePieces(t.Context(), []byte(sides["ours"]), []byte(base), []byte(sides["theirs"]))
		if err != nil {
			t.Fatal(err)
		}
		for _, side := range []string{"ours", "theirs"} {
			got := ""
			for _, p := range pieces {
				switch {
				case !p.Overlap:
					got += p.Text
				case side == "ours":
					got += p.Ours
				default:
					got += p.Theirs
				}
				if p.Overlap {
					overlaps++
				}
			}
			cmd := exec.Command("git", "merge-file", "-p", "--"+side, "ours", "base", "theirs")
			cmd.Dir = dir
			want, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s of %q: %q, and git has %q: %+v", side, sides, got, want, pieces)
			}
		}
	}
	if overlaps < 50 {
		t.Errorf("only %d places overlapped", overlaps)
	}
}
