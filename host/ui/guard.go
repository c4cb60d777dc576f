package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	cookieName = "hutch"
	csrfField  = "csrf"
	maxForm    = 1 << 20 // bytes of a request's body
	maxLinks   = 16      // that wait to be used
)

// guard decides which requests are looked at. Other programs of this machine, other users, and pages of other sites,
// which can make a browser send requests here, get nothing.
type guard struct {
	port    int
	prefix  string // of all paths but that of links; it is the cookie's, so that servers at other ports never see that
	session string // value of the cookie
	csrf    string // in each form
	policy  string
	used    func(link string)

	mu    sync.Mutex
	links []string // tokens that were not used
}

func newGuard(at *net.TCPAddr, files int) *guard {
	return &guard{port: at.Port, prefix: "/" + rand.Text(), session: rand.Text(), csrf: rand.Text(),
		policy: policy(files), used: func(string) {}}
}

func (g *guard) link() string {
	token := rand.Text()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.links) >= maxLinks {
		g.links = g.links[1:]
	}
	g.links = append(g.links, token)
	return g.url(token)
}

func (g *guard) url(token string) string {
	return fmt.Sprintf("http://127.0.0.1:%d/?token=%s", g.port, token)
}

// redeem takes the token of a link, once.
func (g *guard) redeem(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, t := range g.links {
		if same(t, token) {
			g.links = slices.Delete(g.links, i, i+1)
			return true
		}
	}
	return false
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// policy lets a page load our style and script, send forms, listen to events and show pictures that a run left, from
// the port of files, and nothing else.
func policy(files int) string {
	return fmt.Sprintf("default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
		"img-src http://127.0.0.1:%[1]d http://localhost:%[1]d; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		files)
}

// protect serves next to who has the cookie.
func (g *guard) protect(next http.Handler) http.Handler {
	next = http.StripPrefix(g.prefix, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", g.policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		switch {
		case r.Host != fmt.Sprintf("127.0.0.1:%d", g.port) && r.Host != fmt.Sprintf("localhost:%d", g.port):
			refuse(w, http.StatusForbidden, "this host is not served") // a name that somebody made lead here
		case origin != "" && origin != "http://"+r.Host:
			refuse(w, http.StatusForbidden, "this origin is not served")
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
			refuse(w, http.StatusMethodNotAllowed, "only GET and POST do anything here")
		case r.URL.Path == "/" && r.Method == http.MethodGet && r.URL.Query().Has("token"):
			g.enter(w, r)
		case site != "" && site != "same-origin" && site != "none":
			refuse(w, http.StatusForbidden, "another site asked for this page")
		case !g.knows(r):
			refuse(w, http.StatusUnauthorized, "open the link that hutch ui printed")
		case r.Method == http.MethodPost && !g.form(w, r):
			refuse(w, http.StatusForbidden, "this form is not from this page; load the page again")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// enter exchanges the token of a link for the cookie. The answer is a page that leads on, and no redirect, because a
// browser withholds the cookie from a redirect that another site led to.
func (g *guard) enter(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	if !g.redeem(token) {
		refuse(w, http.StatusUnauthorized,
			"this link is not valid any more; use the last one that hutch ui printed, or start it again")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: g.session, Path: g.prefix, HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta charset="utf-8"><title>hutch</title>`+
		`<meta http-equiv="refresh" content="0; url=%[1]s/"><p><a href="%[1]s/">hutch</a></p></html>`, g.prefix)
	g.used(g.url(token))
}

// knows reports whether the request has the cookie and a path that is served with it.
func (g *guard) knows(r *http.Request) bool {
	c, err := r.Cookie(cookieName)
	return err == nil && same(c.Value, g.session) && strings.HasPrefix(r.URL.Path, g.prefix+"/")
}

// form reads the form of a change, and reports whether it is from one of our pages.
func (g *guard) form(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Origin") == "" || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		return false
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(30 * time.Second))
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if r.ParseForm() != nil {
		return false
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return same(r.PostForm.Get(csrfField), g.csrf)
}

func refuse(w http.ResponseWriter, code int, why string) {
	http.Error(w, "hutch: "+why, code)
}

// at is the path of a page.
func (g *guard) at(parts ...string) string {
	p := g.prefix
	for _, s := range parts {
		p += "/" + url.PathEscape(s)
	}
	return p
}
