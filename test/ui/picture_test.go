package ui

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/hutch-run/hutch/test/e2e"
)

var update = flag.Bool("update", false, "write the pictures of docs/ui.md and README.md again")

// TestPictures has three agents work on a project and takes the pictures that the documentation shows: the cards, and a
// review with a hunk ticked.
//
//	go test ./test/ui -run Pictures -update
func TestPictures(t *testing.T) {
	j := newJourney(t)
	var till []string
	for i := range 30 {
		till = append(till, fmt.Sprintf("# step %d\n", i+1))
	}
	till[4], till[21] = "total = sum(prices)\n", "print(total)\n"
	for name, text := range map[string]string{"till.py": strings.Join(till, ""), "README.md": "# Shop\n"} {
		if err := os.WriteFile(filepath.Join(j.project, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"claude", "codex", "reviewer"} {
		j.hutch("create", "--backend", "bwrap", "--workspace", j.project, "--name", name)
		t.Cleanup(func() { j.remove(name) })
	}
	j.hutch("exec", "claude", "--", "sh", "-c", `sed -i -e 's/sum(prices)/sum(prices) - discount/' -e 's/print(total)/print(f"{total:.2f}")/' till.py; echo "def test_discount(): ..." > test_till.py`)
	j.hutch("exec", "codex", "--", "sh", "-c", "echo 'Run till.py to sell.' >> README.md; echo '# checked' >> till.py")
	watching := exec.Command(e2e.Hutch(), "exec", "reviewer", "--", "sh", "-c", "while sleep 1; do wc -l *.py; done")
	watching.Env = append(os.Environ(), "HUTCH_HOME="+j.home, "HUTCH_BACKEND_PATH=")
	if err := watching.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = watching.Process.Kill(), watching.Wait() })
	link, _ := j.serve()
	j.run(j.ctx, chromedp.EmulateViewport(1180, 640), chromedp.Navigate(link), chromedp.WaitVisible(".card"))
	j.shows(j.ctx, ".card", "codex ready backend bwrap isolation namespace workspace overlay Changes 2 paths")
	j.await(j.ctx, "the third one works", `/Uses [0-9]+ % of a processor/.test(document.querySelector(".cards").innerText.replace(/\s+/g, " "))`)
	j.picture("ui.png")
	j.follow(j.ctx, "claude", ".card h3 a")
	j.run(j.ctx, chromedp.EmulateViewport(1180, 900), chromedp.WaitVisible(".diff .head"), chromedp.Click("[name=hunk]"))
	j.shows(j.ctx, ".file summary", "till.py also in codex")
	j.picture("ui-review.png")
}

// picture takes a picture of the window, with names of directories as they are on a reader's machine.
func (j *journey) picture(name string) {
	j.t.Helper()
	var png []byte
	j.run(j.ctx, chromedp.Evaluate(fmt.Sprintf(`(() => {
		const w = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (w.nextNode()) w.currentNode.nodeValue = w.currentNode.nodeValue.replaceAll(%q, "/srv/shop").replaceAll(%q, "/srv/hutch").replace(/^hutch \S+$/, "hutch");
		document.querySelector(".project h2")?.replaceChildren("shop");
	})()`, j.project, j.home), nil), chromedp.CaptureScreenshot(&png))
	if len(png) < 10<<10 {
		j.t.Errorf("the picture %s has %d bytes", name, len(png))
	}
	if *update {
		if err := os.WriteFile(filepath.Join("..", "..", "docs", name), png, 0o644); err != nil {
			j.t.Fatal(err)
		}
	}
}
