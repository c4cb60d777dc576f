package ui

import (
	"fmt"
	"strings"
	"testing"

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
	j.hutch("exec", "box", "--", "sh", "-c", fmt.Sprintf(`for d in $(seq %d); do mkdir d$d; for i in $(seq 1000); do echo $i > d$d/f$i; done; done`, tree))
	j.shows(j.ctx, ".card", fmt.Sprintf("workspace overlay Changes %d paths", 1001*tree))
	j.follow(j.ctx, "box", ".card h3 a")
	j.shows(j.ctx, ".title", fmt.Sprintf("%d files", 1000*tree))
	j.run(j.ctx, chromedp.SendKeys("#find", "d7/f99\r"), chromedp.WaitVisible(".find"))
	j.shows(j.ctx, "nav", "11 files found")
	var ms float64
	const opened = `performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd`
	j.run(j.ctx, chromedp.Reload(), chromedp.WaitVisible(".find"), chromedp.Evaluate(opened, &ms))
	t.Logf("a review of %d files opens in %.0f ms", 1000*tree, ms)
}
