package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestAllowOnce has commands denied a destination, and a person allow it by a button: in a persistent sandbox, whose
// rules stay as they are, and for a run that is not in a persistent sandbox.
func TestAllowOnce(t *testing.T) {
	j := newJourney(t)
	e2e.Require(t, "curl")
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "it answered") }))
	defer service.Close()
	host := strings.Replace(strings.TrimPrefix(service.URL, "http://"), "127.0.0.1", "host", 1)
	link, _ := j.serve()
	j.run(j.ctx, chromedp.Navigate(link), chromedp.WaitVisible(".empty"))
	fetch := []string{"curl", "-sSf", "http://" + host}

	denied := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(j.ctx, e2e.Hutch(), append(args, fetch...)...)
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+j.home, "HUTCH_BACKEND_PATH=")
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("hutch %q was not denied:\n%s", args, out)
		}
	}
	allow := func(command string) {
		t.Helper()
		j.run(j.ctx, chromedp.Navigate(j.at("/runs")), chromedp.WaitVisible(".list"))
		j.run(j.ctx, chromedp.Click(".list tbody tr:first-child a"), chromedp.WaitVisible(".denied .button"))
		j.shows(j.ctx, ".denied", host+" is not in network.allow")
		j.shows(j.ctx, ".denied code", `"`+host+`"]`)
		j.shows(j.ctx, ".denied code", command)
		j.run(j.ctx, chromedp.Click(".denied .button"), chromedp.WaitVisible(".output"))
		j.shows(j.ctx, ".output", "it answered")
		j.shows(j.ctx, ".result", "ok")
	}
	j.hutch("create", "--backend", "bwrap", "--allow-host", "unused.example", "--name", "box")
	t.Cleanup(func() { j.remove("box") })
	j.run(j.ctx, chromedp.Navigate(j.at("/")), chromedp.WaitVisible(".card"))
	denied("exec", "box", "--")
	allow("hutch exec --allow-host " + host + " box -- " + strings.Join(fetch, " "))
	denied("exec", "box", "--") // it was allowed once

	// While a command runs, its card says what it is denied, and a button opens its network.
	loop := exec.CommandContext(j.ctx, e2e.Hutch(), "exec", "box", "--", "sh", "-c", "until curl -sSf http://"+host+"; do sleep 0.2; done; exec sleep 600")
	loop.Env = append(os.Environ(), "HUTCH_HOME="+j.home, "HUTCH_BACKEND_PATH=")
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = loop.Process.Kill(), loop.Wait() })
	j.run(j.ctx, chromedp.Navigate(j.at("/")), chromedp.WaitVisible(".card"))
	j.shows(j.ctx, ".card", "Network 1 denied: "+host+" Runs now sh")
	j.follow(j.ctx, "sh", ".card dl a")
	j.run(j.ctx, chromedp.Click(".denied .button"))
	j.shows(j.ctx, ".denied", "Allowed since, until the command ends")
	j.shows(j.ctx, ".output", "it answered")
	j.shows(j.ctx, ".list td", "allowed")
	j.shows(j.ctx, ".wide", "until curl")
	_, _ = loop.Process.Kill(), loop.Wait()
	j.shows(j.ctx, ".result", "interrupted")
	denied("exec", "box", "--")

	denied("run", "--backend", "bwrap", "--allow-host", "unused.example", "--")
	allow("hutch replay --allow-host " + host)
}
