package ui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzForm sends forms and addresses of any content through the guard: without the page's own secret nothing passes,
// and with it the paths of a form are those that a page wrote.
func FuzzForm(f *testing.F) {
	g := &guard{port: 8080, prefix: "/p", session: "session", csrf: "secret"}
	f.Add("/sandbox/x/apply", "path="+ref("a.txt")+"&seen="+ref("a.txt")+".1f&allow=--allow-git&csrf=")
	f.Add("/?token=x", "what=all&take=%ff")
	f.Add("//x/../%2e", "path=====&path=!")
	f.Fuzz(func(t *testing.T, at, body string) {
		u, err := url.ParseRequestURI(at)
		if err != nil || strings.Contains(body, g.csrf) {
			return
		}
		for _, secret := range []string{"", g.csrf} {
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/", strings.NewReader(csrfField+"="+secret+"&"+body))
			r.URL.Path, r.URL.RawQuery = g.prefix+"/"+u.Path, u.RawQuery
			r.Header.Set("Origin", "http://127.0.0.1:8080")
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.AddCookie(&http.Cookie{Name: cookieName, Value: g.session})
			passed := false
			g.protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				passed = true
				paths, err := derefs(r.PostForm["path"])
				for _, p := range paths {
					if again, err := deref(ref(p)); err != nil || again != p {
						t.Errorf("the path %q is %q after a page: %v", p, again, err)
					}
				}
				if err == nil && len(paths) != len(r.PostForm["path"]) {
					t.Errorf("the paths %q are %q", r.PostForm["path"], paths)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
			if passed && secret == "" {
				t.Errorf("%q %q passed without the page's secret", at, body)
			}
		}
	})
}
