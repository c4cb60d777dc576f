package security

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk/backendtest"
)

var update = flag.Bool("update", false, "write the catalogue to docs/reference/attacks.md (as root, whole)")

const pageFile = "../../docs/reference/attacks.md"

// columns are the places of the page, in order.
var columns = []string{"bwrap root", "bwrap user", "podman root", "podman user", "landlock root", "landlock user", "control root", "control user"}

// table holds the outcome of a case at a place.
type table map[[2]string]string

var tableLock sync.Mutex

func (r table) set(id, place, outcome string) {
	tableLock.Lock()
	defer tableLock.Unlock()
	r[[2]string{id, place}] = outcome
}

// compareWithPage requires the page to say what happened. Cells of cases that did not run are not looked at.
func (r table) compareWithPage(t *testing.T) {
	t.Helper()
	old := section(t, "catalogue")
	said := table{}
	for _, line := range strings.Split(old, "\n") {
		if cells := strings.Split(line, " | "); len(cells) == len(columns)+2 {
			for i, column := range columns {
				said[[2]string{strings.TrimPrefix(cells[0], "| "), column}] = strings.TrimSuffix(cells[i+2], " |")
			}
		}
	}
	if *update {
		replaceSection(t, "catalogue", r.markdown(t, said))
		return
	}
	for at, got := range r {
		if said[at] != got {
			t.Errorf("docs/reference/attacks.md says %q of %s at %q, and it is %q now (go test ./test/security -run TestCatalogue -update)", said[at], at[0], at[1], got)
		}
	}
}

// markdown is the table, with what the page says of cases that did not run.
func (r table) markdown(t *testing.T, said table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| case | attempt | %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+2))
	for _, a := range catalogue {
		fmt.Fprintf(&b, "| %s | %s |", a.id, a.about)
		for _, c := range columns {
			outcome := cmp.Or(r[[2]string{a.id, c}], said[[2]string{a.id, c}])
			if outcome == "" {
				t.Fatalf("no outcome of %s at %q: update the page as root, with this case at every place", a.id, c)
			}
			fmt.Fprintf(&b, " %s |", outcome)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestHostCases requires that the page lists every case on the host with tests that exist.
func TestHostCases(t *testing.T) {
	var b strings.Builder
	b.WriteString("| case | attempt | safe outcome | test |\n| --- | --- | --- | --- |\n")
	seen := map[string]bool{}
	for _, c := range hostCases {
		if seen[c.id] {
			t.Errorf("%s is listed twice", c.id)
		}
		seen[c.id] = true
		pkg, name, _ := strings.Cut(c.test, " ")
		if !hasTest(pkg, name) {
			t.Errorf("%s: %s has no test %s", c.id, pkg, name)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` in `%s` |\n", c.id, c.attempt, c.outcome, name, pkg)
	}
	if *update {
		replaceSection(t, "host", b.String())
		return
	}
	if d := gocmp.Diff(section(t, "host"), b.String()); d != "" {
		t.Errorf("docs/reference/attacks.md is out of date: go test ./test/security -run TestHostCases -update (-is +should be)\n%s", d)
	}
}

func hasTest(pkg, name string) bool {
	files, _ := filepath.Glob("../../" + pkg + "/*_test.go")
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && bytes.Contains(b, []byte("\nfunc "+name+"(t *testing.T) {"))
	})
}

// TestPromises requires that each row and each point of the threat model has tests that exist, and that the page of
// attacks lists them.
func TestPromises(t *testing.T) {
	known := map[string]bool{}
	for _, c := range backendtest.Checks() {
		known[c.ID] = true
	}
	for _, c := range hostCases {
		known[c.id] = true
	}
	for _, a := range catalogue {
		known[a.id] = true
	}
	page, err := os.ReadFile("../../docs/threat-model.md")
	must(t, err)
	claims := claimsOf(string(page))
	var b strings.Builder
	b.WriteString("| section | point | held by |\n| --- | --- | --- |\n")
	for _, s := range promises {
		for i, p := range s.list {
			said := claims[s.section]
			if i >= len(said) || !strings.HasPrefix(said[i], p.claim) {
				t.Errorf("point %d of %q does not begin with %q", i+1, s.section, p.claim)
				continue
			}
			for j, h := range p.held {
				pkg, name, ok := strings.Cut(h, " ")
				if ok && !hasTest(pkg, name) || !ok && !known[h] {
					t.Errorf("%s: there is no %s", p.claim, h)
				}
				if ok {
					p.held[j] = "`" + name + "` in `" + pkg + "`"
				}
			}
			if len(p.held) > 0 {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", s.section, strings.TrimSuffix(p.claim, "."), strings.Join(p.held, ", "))
			}
		}
		if n := len(claims[s.section]); n != len(s.list) {
			t.Errorf("%q has %d points, and %d are listed in promises", s.section, n, len(s.list))
		}
		delete(claims, s.section)
	}
	for section := range claims {
		t.Errorf("no promise of %q is listed in promises", section)
	}
	if *update {
		replaceSection(t, "promises", b.String())
		return
	}
	if d := gocmp.Diff(section(t, "promises"), b.String()); d != "" {
		t.Errorf("docs/reference/attacks.md is out of date: go test ./test/security -run TestPromises -update (-is +should be)\n%s", d)
	}
}

// claimsOf returns the points and the rows of each section, without markup.
func claimsOf(page string) map[string][]string {
	plain := strings.NewReplacer("`", "", "**", "")
	link := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	out := map[string][]string{}
	section := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		claim, point := strings.CutPrefix(line, "- **")
		row, isRow := strings.CutPrefix(line, "| ")
		if isRow && !strings.HasPrefix(row, "---") && !strings.HasPrefix(row, "promise |") {
			claim, point = row, true
		}
		if point {
			out[section] = append(out[section], link.ReplaceAllString(plain.Replace(claim), "$1"))
		}
	}
	return out
}

// section is what stands between the markers of a name on the page.
func section(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(pageFile)
	must(t, err)
	_, rest, ok := strings.Cut(string(b), "<!-- "+name+" -->\n\n")
	text, _, ok2 := strings.Cut(rest, "\n<!-- end of "+name+" -->")
	if !ok || !ok2 {
		t.Fatalf("%s has no section %q", pageFile, name)
	}
	return text
}

func replaceSection(t *testing.T, name, text string) {
	t.Helper()
	old := section(t, name)
	b, err := os.ReadFile(pageFile)
	must(t, err)
	begin := "<!-- " + name + " -->\n\n"
	must(t, os.WriteFile(pageFile, []byte(strings.Replace(string(b), begin+old, begin+text, 1)), 0o644))
}
