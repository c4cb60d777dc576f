package ui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestAccessible has axe look at every page, light and wide, dark and narrow.
func TestAccessible(t *testing.T) {
	j := newJourney(t)
	axe, err := os.ReadFile(filepath.Join(e2e.NPM(t, os.DirFS(".")), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(j.project, "plan.md"), []byte("the plan\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	j.hutch("create", "--backend", "bwrap", "--workspace", j.project, "--allow-host", "packages.example.org", "--name", "left")
	t.Cleanup(func() { j.remove("left") })
	j.hutch("exec", "left", "--", "sh", "-c", "echo more >> plan.md; chmod 600 plan.md; ln -s /etc link; echo said")
	link, _ := j.serve()
	j.run(j.ctx, chromedp.Navigate(link), chromedp.WaitVisible(".card"))
	root := j.at("")
	var box, run string
	j.run(j.ctx, chromedp.Evaluate(`document.querySelector(".card h3 a").href`, &box), chromedp.Evaluate(`document.querySelector(".card dl a").href`, &run))
	id := run[strings.LastIndexByte(run, '/')+1:]
	pages := []struct{ at, open string }{
		{root + "/", ".card [data-open]"}, {box + "/do", ""}, {root + "/", "#new summary"}, {box, ""}, {root + "/runs", ""}, {run + "?check=1", ""},
		{root + "/compare?run=" + id + "&run=" + id, ""}, {root + "/doctor", ""}, {root + "/sandbox/nothing", ""},
	}
	for scheme, width := range map[string]int64{"light": 1200, "dark": 380} {
		j.run(j.ctx, chromedp.EmulateViewport(width, 900), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		for _, p := range pages {
			var found []string
			j.run(j.ctx, chromedp.Navigate(p.at), chromedp.WaitVisible("main"))
			if p.open != "" {
				j.run(j.ctx, chromedp.Click(p.open, chromedp.ByQuery))
			}
			j.run(j.ctx, chromedp.Evaluate(string(axe)+";0", nil), chromedp.Evaluate(
				`axe.run().then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 200) + ": " + n.failureSummary)))`,
				&found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			for _, f := range found {
				t.Errorf("%s, %s, %d wide: %s", strings.TrimPrefix(p.at, root), scheme, width, f)
			}
		}
	}
}
