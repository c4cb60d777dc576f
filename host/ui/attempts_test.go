package ui

import (
	"context"
	goflag "flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/testbackend"
)

// attempt is a request that must get nothing and change nothing.
type attempt struct {
	what   string
	method string            // GET
	path   string            // below the prefix; with a leading "!" as it stands
	host   string            // that of the server
	header map[string]string // on top of, or in place of, those that our page sends; "" leaves one out
	form   url.Values        // of a POST
	csrf   string            // in place of the right one; "-" for none
	cookie string            // in place of the right one; "-" for none
	want   int
}

// TestAttempts is the table of docs/reference/attacks.md about the web page.
func TestAttempts(t *testing.T) {
	w := newWorld(t)
	id := w.create("box")
	w.sh(id, "echo more >> a.txt; ln -s /etc/passwd link")
	reset, apply := "/sandbox/"+id+"/reset", "/sandbox/"+id+"/apply"
	port := w.origin[strings.LastIndex(w.origin, ":"):]
	used := w.Link()
	if code, _ := w.get(used); code != http.StatusOK {
		t.Fatal("a link does not work")
	}
	outside := filepath.Join(w.t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("not for this page"), 0o600); err != nil {
		t.Fatal(err)
	}
	type h = map[string]string
	hard := url.Values{"hard": {"on"}, "force": {"on"}}
	all := []attempt{
		// Who are you?
		{what: "no cookie", path: "/", cookie: "-", want: 401},
		{what: "another cookie", path: "/", cookie: "AAAAAAAAAAAAAAAAAAAAAAAAAA", want: 401},
		{what: "an empty cookie", path: "/", cookie: " ", want: 401},
		{what: "the cookie without the secret path", path: "!/runs", want: 401},
		{what: "the cookie and another path", path: "!/AAAAAAAAAAAAAAAAAAAAAAAAAA/", want: 401},
		{what: "the top without a token", path: "!/", want: 401},
		{what: "a wrong token", path: "!/?token=AAAAAAAAAAAAAAAAAAAAAAAAAA", want: 401},
		{what: "an empty token", path: "!/?token=", want: 401},
		{what: "a token that was used", path: "!" + strings.TrimPrefix(used, w.origin), want: 401},
		{what: "a token in a form", method: "POST", path: "!/?token=AAAAAAAAAAAAAAAAAAAAAAAAAA", want: 401},
		{what: "style without cookie", path: "/style.css", cookie: "-", want: 401},
		{what: "events without cookie", path: "/events", cookie: "-", want: 401},
		{what: "a form without cookie", method: "POST", path: reset, form: hard, cookie: "-", want: 401},
		// DNS rebinding
		{what: "a name of somebody else's", path: "/", host: "evil.example" + port, want: 403},
		{what: "a name that ends as ours", path: "/", host: "127.0.0.1.evil.example" + port, want: 403},
		{what: "our address without port", path: "/", host: "127.0.0.1", want: 403},
		{what: "another port", path: "/", host: "127.0.0.1:1", want: 403},
		{what: "every address", path: "/", host: "0.0.0.0" + port, want: 403},
		{what: "a link by another name", path: "!" + strings.TrimPrefix(w.Link(), w.origin), host: "evil.example" + port, want: 403},
		// Pages of other sites
		{what: "a page of another site reads", path: "/", header: h{"Origin": "https://evil.example"}, want: 403},
		{what: "a page without origin reads", path: "/", header: h{"Origin": "null"}, want: 403},
		{what: "another server of this machine reads", path: "/", header: h{"Origin": "http://127.0.0.1:3000"}, want: 403},
		{what: "another site loads a script", path: "/script.js", header: h{"Sec-Fetch-Site": "cross-site"}, want: 403},
		{what: "another port shows the page", path: "/", header: h{"Sec-Fetch-Site": "same-site"}, want: 403},
		{what: "another site listens", path: "/events", header: h{"Sec-Fetch-Site": "cross-site"}, want: 403},
		{what: "a preflight", method: "OPTIONS", path: reset, header: h{"Origin": w.origin}, want: 405},
		{what: "a form of another site", method: "POST", path: reset, form: hard, header: h{"Origin": "https://evil.example"}, want: 403},
		{what: "a form of a sandboxed frame", method: "POST", path: reset, form: hard, header: h{"Origin": "null"}, want: 403},
		{what: "a form of another port", method: "POST", path: reset, form: hard, header: h{"Origin": "http://127.0.0.1:3000"}, want: 403},
		{what: "a form over https", method: "POST", path: reset, form: hard, header: h{"Origin": "https" + strings.TrimPrefix(w.origin, "http")}, want: 403},
		{what: "a form of nowhere", method: "POST", path: reset, form: hard, header: h{"Origin": ""}, want: 403},
		{what: "a form without its token", method: "POST", path: reset, form: hard, csrf: "-", want: 403},
		{what: "a form with another token", method: "POST", path: reset, form: hard, csrf: "AAAAAAAAAAAAAAAAAAAAAAAAAA", want: 403},
		{what: "a form with its token in the address", method: "POST", path: reset + "?csrf=" + w.guard.csrf, form: hard, csrf: "-", want: 403},
		{what: "a sandbox made without a token", method: "POST", path: "/create", form: url.Values{"source": {"/"}, "backend": {"fake"}}, csrf: "-", want: 403},
		{what: "a sandbox made by another site", method: "POST", path: "/create", form: url.Values{"source": {"/"}, "backend": {"fake"}}, header: h{"Origin": "https://evil.example"}, want: 403},
		{what: "a form as text", method: "POST", path: reset, form: hard, header: h{"Content-Type": "text/plain"}, want: 403},
		{what: "a form as JSON", method: "POST", path: reset, form: hard, header: h{"Content-Type": "application/json"}, want: 403},
		{what: "a form of a megabyte", method: "POST", path: reset, form: url.Values{"path": {strings.Repeat("a", maxForm)}}, want: 403},
		{what: "an action by a link", path: reset + "?hard=on&csrf=" + w.guard.csrf, want: 405},
		{what: "another method", method: "DELETE", path: "/sandbox/" + id, want: 405},
		// Names and paths
		{what: "a file of the host", path: "/../../../etc/passwd", want: 307}, // to a path without the secret one,
		{what: "a template", path: "/home.html", want: 404},
		{what: "a sandbox by a path", path: "/sandbox/..%2f..%2f..%2fetc", want: 404},
		{what: "a run by a path", path: "/runs/..%2f..%2f..%2fetc", want: 404},
		{what: "a file outside of the project", path: "/sandbox/" + id + "/file?path=" + ref(outside), want: 400},
		{what: "a file above the project", path: "/sandbox/" + id + "/file?path=" + ref("../outside"), want: 400},
		{what: "a path that cannot be read", path: "/sandbox/" + id + "/file?path=!", want: 400},
		{what: "a comparison by a path", path: "/compare?run=..%2f..%2fetc&run=..%2f..%2fetc", want: 404},
		{what: "an unknown action", method: "POST", path: "/sandbox/" + id + "/exec", form: hard, want: 404},
		{what: "a sandbox by its name", method: "POST", path: "/sandbox/box/reset", form: hard, want: 404},
		// Refusals hold: these lead to a page that says no.
		{what: "an apply of a path outside", method: "POST", path: apply, form: url.Values{"what": {"chosen"}, "path": {ref("../outside")}}, want: 303},
		{what: "an apply of what is refused", method: "POST", path: apply, form: url.Values{"what": {"all"}}, want: 303},
		{what: "an allowance that there is not", method: "POST", path: apply, form: url.Values{"what": {"all"}, "allow": {"--allow-special", "links"}}, want: 303},
		{what: "an apply of what was not seen so", method: "POST", path: apply, form: url.Values{"what": {"chosen"}, "path": {ref("a.txt")}, "seen": {ref("a.txt") + ".0"}}, want: 303},
		{what: "an apply of a hunk that was not seen", method: "POST", path: apply, form: url.Values{"what": {"chosen"}, "hunk": {ref("a.txt") + ".1"}}, want: 303},
		{what: "an apply of a hunk outside", method: "POST", path: apply, form: url.Values{"what": {"chosen"}, "hunk": {ref("../outside") + ".1"}}, want: 303},
		{what: "the end of a run of somebody else's", method: "POST", path: "/cancel/261123-000000-aaaaaa", want: 303},
	}
	for _, a := range all {
		t.Run(a.what, func(t *testing.T) { w.try(a) })
	}
	var table strings.Builder
	table.WriteString("| case | attempt | answer |\n| --- | --- | --- |\n")
	for i, a := range all {
		answer := strconv.Itoa(a.want) + " " + http.StatusText(a.want)
		if a.want == http.StatusSeeOther {
			answer = "a page that says no"
		}
		fmt.Fprintf(&table, "| UI-%02d | %s | %s |\n", i+1, a.what, answer)
	}
	comparePage(t, table.String())
	w.see("/sandbox/"+id, "a.txt", "link") // it was not reset
	if got := w.read("a.txt"); got != "one\ntwo\n" {
		t.Errorf("the project was changed: %q", got)
	}
}

var update = goflag.Bool("update", false, "write the table of attempts to docs/reference/attacks.md")

func comparePage(t *testing.T, table string) {
	t.Helper()
	const file, begin, end = "../../docs/reference/attacks.md", "<!-- ui -->\n\n", "\n<!-- end of ui -->"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no section ui", file)
	case *update && !t.Failed():
		if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case old != table:
		t.Errorf("docs/reference/attacks.md is out of date: go test ./host/ui -run TestAttempts -update\n%s", cmp.Diff(old, table))
	}
}

func (w *world) try(a attempt) {
	w.t.Helper()
	to := w.origin + w.guard.prefix + a.path
	if at, ok := strings.CutPrefix(a.path, "!"); ok {
		to = w.origin + at
	}
	if a.method == "" {
		a.method = http.MethodGet
	}
	if a.form == nil {
		a.form = url.Values{}
	}
	switch a.csrf {
	case "":
		a.form.Set(csrfField, w.guard.csrf)
	case "-":
		a.form.Del(csrfField)
	default:
		a.form.Set(csrfField, a.csrf)
	}
	body := ""
	if a.method == http.MethodPost {
		body = a.form.Encode()
	}
	r, err := http.NewRequestWithContext(w.t.Context(), a.method, to, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if a.method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", w.origin)
	}
	switch a.cookie {
	case "-":
	case "":
		r.AddCookie(&http.Cookie{Name: cookieName, Value: w.guard.session})
	default:
		r.AddCookie(&http.Cookie{Name: cookieName, Value: strings.TrimSpace(a.cookie)})
	}
	for k, v := range a.header {
		r.Header.Del(k)
		if v != "" {
			r.Header.Set(k, v)
		}
	}
	if a.host != "" {
		r.Host = a.host
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != a.want {
		w.t.Errorf("%s: status %d, want %d", a.what, answer.StatusCode, a.want)
	}
	if a.want != http.StatusSeeOther && answer.Header.Get("Set-Cookie") != "" {
		w.t.Errorf("%s: there is a cookie", a.what)
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": w.guard.policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
	} {
		if got := answer.Header.Get(name); got != want {
			w.t.Errorf("%s: %s: %q", a.what, name, got)
		}
	}
}

// TestHostile has what a program can choose (names, contents, output, its command) on the pages.
func TestHostile(t *testing.T) {
	const script = `<script>alert(1)</script>`
	for _, c := range []struct{ what, line, shown, never string }{
		{"the name of a file", `echo a > '` + `<img src=x onerror=alert(1)>` + `'`, "&lt;img src=x onerror=alert(1)&gt;", "<img src=x"},
		{"a name that ends an attribute", `echo a > '" autofocus onfocus="alert(1)'`, "&#34;", `" autofocus onfocus`},
		{"a name of two lines", `printf a > "$(printf 'a\nb')"`, `\n`, "a\nb<"},
		{"a name with an escape sequence", `printf a > "$(printf 'a\033[2Jb')"`, `\033`, "\x1b"},
		{"a name that turns the text round", `printf a > "$(printf 'a\342\200\256txt.exe')"`, `\342`, "\u202e"},
		{"a name that is no text", `printf a > "$(printf 'a\377b')"`, `\377`, "\xff"},
		{"a content of HTML", `echo '</td></table>` + script + `' > x`, "&lt;/td&gt;", "</table><script"},
		{"a content that turns the text round", `printf 'a\342\200\256b\n' > x`, `202e`, "\u202e"},
		{"a content with an escape sequence", `printf 'a\033]0;title\007b\n' > x`, "title", "\x1b"},
		{"a link to HTML", `ln -s '` + script + `' x`, "&lt;script&gt;", script},
		{"output of HTML", `echo '` + script + `'`, "&lt;script&gt;", script},
		{"output with a link", `printf '\033]8;;javascript:alert(1)\033\\click\033]8;;\033\\\n'`, "click", `href="javascript`},
		{"output with a picture", `printf '\033]1337;File=name=eA==;inline=1:PHN2Zz4=\007\n'`, "1337", "<img"},
		{"output with a colour that is HTML", `printf '\033[31"><b>mred\n'`, "red", "<b>m"},
		{"output that turns the text round", `printf 'a\342\200\256b\n'`, "202e", "\u202e"},
		{"errors of HTML", `echo '` + script + `' >&2`, "&lt;script&gt;", script},
		{"a line of a megabyte", `head -c 1000000 /dev/zero | tr '\0' 'a' > x`, "bytes more", strings.Repeat("a", maxLine+200)},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			id := w.create("box")
			run := w.sh(id, c.line)
			pages := w.see("/") + w.see("/sandbox/"+id) + w.see("/runs") + w.see("/runs/"+run)
			if !strings.Contains(pages, c.shown) || strings.Contains(pages, c.never) {
				t.Errorf("it does not show %q, or has %q:\n%s", c.shown, c.never, pages)
			}
		})
	}
}

// TestOnceToken starts the server as hutch ui does. With --once-token one browser gets in, and no link follows.
func TestOnceToken(t *testing.T) {
	t.Setenv("HUTCH_HOME", t.TempDir())
	t.Setenv("HUTCH_BACKEND_PATH", testbackend.Dir(t, "fake"))
	for _, once := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		links, ended := make(chan string, 2), make(chan error, 1)
		note := func(format string, args ...any) {
			if s := fmt.Sprintf(format, args...); strings.Contains(s, "token=") {
				links <- s[strings.Index(s, "http"):]
			}
		}
		go func() { ended <- Run(ctx, Call{NoOpen: true, OnceToken: once}, func(l string) { links <- l }, note) }()
		get := func(link string) int {
			a, err := http.Get(link)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			return a.StatusCode
		}
		link := <-links
		if code := get(link); code != http.StatusOK {
			t.Errorf("once %v: the link: %d", once, code)
		}
		if code := get(link); code != http.StatusUnauthorized {
			t.Errorf("once %v: the link again: %d", once, code)
		}
		if !once {
			if code := get(<-links); code != http.StatusOK {
				t.Errorf("the link that follows: %d", code)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if once && len(links) > 0 {
			t.Errorf("another link follows: %s", <-links)
		}
	}
}
