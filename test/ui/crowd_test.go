package ui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// crowd is how many sandboxes there are, and tree how many directories of a thousand files one of them has written.
const (
	crowd = 200
	tree  = 10
)

// TestCrowd has 200 sandboxes on the page, and 10,000 changed files in a review.
func TestCrowd(t *testing.T) {
	j := newJourney(t)
	var made []string
	j.hutch("create", "--backend", "bwrap", "--workspace", j.project, "--name", "box")
	t.Cleanup(func() { j.remove("box") })
	t.Cleanup(func() { j.remove(made...) })
	made = strings.Fields(j.hutch("fork", "box", "-n", fmt.Sprint(crowd-1)))
	link, _ := j.serve()
	j.run(j.ctx, chromedp.Navigate(link), chromedp.WaitVisible(".card"))
	j.await(j.ctx, "all are there", fmt.Sprintf(`document.querySelectorAll(".card").length === %d`, crowd))
	var weight int
	const weigh = `Promise.all(["", "style.css", "script.js"].map(p => fetch(p).then(a => a.text()))).then(l => new TextEncoder().encode(l.join("")).length)`
	j.run(j.ctx, chromedp.Evaluate(weigh, &weight,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	t.Logf("the page of %d sandboxes weighs %d bytes", crowd, weight)
	if weight > 150<<10 {
		t.Errorf("the page of %d sandboxes weighs %d bytes", crowd, weight)
	}
	j.plant("box")
	j.shows(j.ctx, ".card", fmt.Sprintf("workspace overlay Changes %d paths", 1001*tree))
	j.follow(j.ctx, "box", ".card h3 a")
	j.shows(j.ctx, ".title", fmt.Sprintf("%d files", 1000*tree))
	j.run(j.ctx, chromedp.SendKeys("#find", "d7/f99\r"), chromedp.WaitVisible(".find"))
	j.shows(j.ctx, "nav", "11 files found")
}

// plant has a sandbox write a tree of 10,000 files.
func (j *journey) plant(name string) {
	j.t.Helper()
	j.hutch("exec", name, "--", "sh", "-c", fmt.Sprintf(`for d in $(seq %d); do mkdir d$d; for i in $(seq 1000); do echo $i > d$d/f$i; done; done`, tree))
}
