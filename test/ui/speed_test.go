package ui

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hutch-run/hutch/test/e2e"
)

// The load: so many sandboxes write so much together, in bytes a second.
const (
	liveBoxes = 20
	liveRate  = 10 << 20
)

// seen is the script of a page that notes when it shows what another process did, after the next frame.
const seen = `window.seen = {}; new MutationObserver(() => requestAnimationFrame(() => {
	for (const a of document.querySelectorAll(".card dl a")) { const id = a.href.split("/").pop(); seen[id] = seen[id] || Date.now(); }
	for (const m of ((document.querySelector(".output") || {}).textContent || "").matchAll(/at (\d{13})/g)) seen[m[1]] = seen[m[1]] || Date.now();
})).observe(document.querySelector("main"), {subtree: true, childList: true, characterData: true, attributes: true}); 0`

// BenchmarkPage measures the page while 20 sandboxes are at work and write 10 MB a second together: how long a run takes
// to appear on a card and a line of output on its page, from when it was written until the next frame. Times are in
// milliseconds. docs/ui.md has the figures.
//
//	go test ./test/ui -run '^$' -bench Page -benchtime 1x
func BenchmarkPage(b *testing.B) {
	j := newJourney(b)
	begin := func(name, line string) *exec.Cmd {
		cmd := exec.Command(e2e.Hutch(), "exec", name, "--", "sh", "-c", line)
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+j.home, "HUTCH_BACKEND_PATH=")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		return cmd
	}
	for i := range liveBoxes + 1 {
		name := fmt.Sprint("box", i)
		j.hutch("create", "--backend", "bwrap", "--workspace", j.project, "--name", name)
		b.Cleanup(func() { j.remove(name) })
	}
	link, _ := j.serve()
	idle := j.resident()
	var load []*exec.Cmd
	for i := range liveBoxes {
		load = append(load, begin(fmt.Sprint("box", i), fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x | fold > /tmp/x; while :; do cat /tmp/x; sleep 0.2; done`, liveRate/liveBoxes/5)))
	}
	quiet := begin(fmt.Sprint("box", liveBoxes), `while :; do echo "at $(date +%s%3N)"; sleep 0.1; done`)
	b.Cleanup(func() {
		for _, c := range append(load, quiet) {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	j.run(j.ctx, chromedp.Navigate(link), chromedp.WaitVisible(".card"))
	j.await(j.ctx, "all are at work", fmt.Sprintf(`document.querySelectorAll(".card dl a").length >= %d`, liveBoxes+1))
	var run string
	j.run(j.ctx, chromedp.Evaluate(fmt.Sprintf(`[...document.querySelectorAll(".card")].find(c => c.querySelector("h3").textContent === "box%d").querySelector("dl a").href`, liveBoxes), &run))
	for b.Loop() {
		j.run(j.ctx, chromedp.Evaluate(seen, nil))
		began := map[string]time.Time{}
		for range 40 {
			j.hutch("exec", "box0", "--", "true")
		}
		chains, err := filepath.Glob(filepath.Join(j.home, "runs", "*", "events.jsonl"))
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range chains {
			var begin struct {
				Run  string
				Time time.Time
			}
			if raw, err := os.Open(c); err == nil {
				if json.NewDecoder(raw).Decode(&begin) == nil {
					began[begin.Run] = begin.Time
				}
				raw.Close()
			}
		}
		report(b, j, "run", func(id string) (time.Time, bool) {
			t, ok := began[id]
			return t, ok && t.After(time.Now().Add(-time.Minute))
		})

		j.run(j.ctx, chromedp.Navigate(run), chromedp.WaitVisible(".output"))
		j.shows(j.ctx, "#live", "Live")
		j.run(j.ctx, chromedp.Evaluate(seen, nil))
		time.Sleep(10 * time.Second) // the measurement
		report(b, j, "line", func(at string) (time.Time, bool) {
			ms, err := strconv.ParseInt(at, 10, 64)
			return time.UnixMilli(ms), err == nil
		})
	}
	b.ReportMetric(float64(idle)/(1<<20), "idle-MB")
	b.ReportMetric(float64(j.resident())/(1<<20), "busy-MB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReview measures how long a review of 10,000 files takes to open, in milliseconds and beside `hutch diff`,
// which looks for the same changes.
func BenchmarkReview(b *testing.B) {
	j := newJourney(b)
	j.hutch("create", "--backend", "bwrap", "--workspace", j.project, "--name", "box")
	b.Cleanup(func() { j.remove("box") })
	j.plant("box")
	link, _ := j.serve()
	j.run(j.ctx, chromedp.Navigate(link), chromedp.WaitVisible(".card"))
	j.follow(j.ctx, "box", ".card h3 a")
	var page, diff []float64
	for b.Loop() {
		const opened = `performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd`
		var ms float64
		j.run(j.ctx, chromedp.Reload(), chromedp.WaitVisible(".find"), chromedp.Evaluate(opened, &ms))
		begun := time.Now()
		j.hutch("diff", "--name-only", "box")
		page, diff = append(page, ms), append(diff, float64(time.Since(begun).Microseconds())/1000)
	}
	slices.Sort(page)
	slices.Sort(diff)
	b.ReportMetric(page[len(page)/2], "open-ms")
	b.ReportMetric(page[len(page)/2]/diff[len(diff)/2], "open/diff")
	b.ReportMetric(0, "ns/op")
}

// report gives the quantiles of how long what the page saw took.
func report(b *testing.B, j *journey, what string, begun func(string) (time.Time, bool)) {
	b.Helper()
	var at map[string]float64
	j.run(j.ctx, chromedp.Evaluate(`seen`, &at))
	var took []float64
	first := slices.Min(slices.Collect(func(yield func(float64) bool) {
		for _, v := range at {
			yield(v)
		}
	}))
	for id, ms := range at {
		if t, ok := begun(id); ok && float64(t.UnixMilli()) > first {
			took = append(took, ms-float64(t.UnixMilli()))
		}
	}
	if len(took) < 20 {
		b.Fatalf("only %d of %s were seen: %v", len(took), what, at)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], what+"-p50-ms")
	b.ReportMetric(took[len(took)*95/100], what+"-p95-ms")
	b.ReportMetric(float64(len(took)), what+"s")
}

// resident is the memory of the server, in bytes: what it has for itself, without pages of the program's file.
func (j *journey) resident() int64 {
	j.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", j.server.Pid))
	if err != nil {
		j.t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				j.t.Fatal(err)
			}
			return kb << 10
		}
	}
	j.t.Fatal("the kernel does not say how much memory it has")
	return 0
}
