package intercept

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
)

const (
	host        = "example.com" // what httptest's certificate is for
	value       = "ghp_theRealValue/0123+456"
	placeholder = "hutch-TOKEN-abcdefghijklmnop"
	otherHolder = "hutch-OTHER-abcdefghijklmnop"
)

func secrets() []sdk.Secret {
	return []sdk.Secret{
		{Name: "TOKEN", Placeholder: placeholder, Value: value, Hosts: []string{host, "host:8080", "*.below.example:8443"},
			Rules: []sdk.SecretRule{{Methods: []string{"GET"}}, {Methods: []string{"POST"}, Paths: []string{"/repos/acme/*"}}}},
		{Name: "OTHER", Placeholder: otherHolder, Value: "other-value", Hosts: []string{"other.example"}},
	}
}

// wall is an interceptor in front of a server, and the command's side of it.
type wall struct {
	t        *testing.T
	i        *Interceptor
	roots    *x509.CertPool // that the command trusts
	server   *httptest.Server
	address  string // of the server
	outcomes chan Outcome
}

func newWall(t *testing.T, handler http.HandlerFunc) *wall {
	authority, err := network.NewAuthority([]string{host, "host", "*.below.example"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	i, err := New(secrets(), authority, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &wall{t: t, i: i, roots: x509.NewCertPool(), outcomes: make(chan Outcome, 100)}
	w.roots.AppendCertsFromPEM(authority.Certificate)
	w.server = httptest.NewUnstartedServer(handler)
	w.server.Config.ErrorLog = discard
	w.server.EnableHTTP2 = true
	w.server.StartTLS()
	w.address = w.server.Listener.Addr().String()
	t.Cleanup(w.server.Close)
	i.RootCAs = x509.NewCertPool()
	i.RootCAs.AddCert(w.server.Certificate())
	return w
}

// dial is a connection of the command to name on port.
func (w *wall) dial(name string, port int) net.Conn {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	inner, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.outcomes <- w.i.Serve(context.Background(), inner, name, port, func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", w.address)
		})
	}()
	w.t.Cleanup(func() { _ = conn.Close(); <-done })
	return conn
}

func (w *wall) client(h2 bool) *http.Client {
	t := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return w.dial(host, 443), nil },
		TLSClientConfig:   &tls.Config{RootCAs: w.roots},
		ForceAttemptHTTP2: h2,
	}
	if !h2 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// outcome ends the client's connections and returns what the wall says of the one that ended. A connection of HTTP/2
// may become idle some time after its last answer.
func (w *wall) outcome(c *http.Client) Outcome {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		c.CloseIdleConnections()
		select {
		case o := <-w.outcomes:
			return o
		case <-again.C:
		}
	}
}

// answered is what a request was answered with, besides the body.
type answered struct {
	StatusCode int
	Header     http.Header
}

// do makes a request, with pairs of a header's name and value.
func (w *wall) do(c *http.Client, method, url string, body io.Reader, header ...string) (answered, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answered{res.StatusCode, res.Header}, string(b)
}

func bothProtocols(t *testing.T, f func(t *testing.T, h2 bool)) {
	for _, h2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[h2], func(t *testing.T) { f(t, h2) })
	}
}

// echo answers with all that came: nothing of it may reach the command.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Echo", r.Header.Get("Authorization"))
	w.Header().Set("Location", "/?q="+r.URL.Query().Get("key"))
	w.Header().Set("X-Got", got(r))
	fmt.Fprintf(w, "%s %s\n%v\n%s", r.Method, r.URL.RequestURI(), r.Header, body)
}

// got says which form of the secret came, without it.
func got(r *http.Request) string {
	_, password, _ := r.BasicAuth()
	return fmt.Sprintf("bearer=%v basic=%v query=%v key=%v", r.Header.Get("Authorization") == "Bearer "+value, password == value, r.URL.Query().Get("key") == value,
		slices.Equal(r.Header.Values("X-Key"), []string{value + value, "plain"}))
}

func TestPutIn(t *testing.T) {
	bothProtocols(t, func(t *testing.T, h2 bool) {
		login := func(password string) string {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+password))
		}
		for _, tt := range []struct {
			name, method, target, want string
			header                     []string
		}{
			{"bearer", "GET", "/user", "bearer=true basic=false query=false key=false", []string{"Authorization", "Bearer " + placeholder}},
			{"basic", "GET", "/user", "bearer=false basic=true query=false key=false", []string{"Authorization", login(placeholder)}},
			{"query", "GET", "/user?a=b&key=" + placeholder, "bearer=false basic=false query=true key=false", nil},
			{"headers", "GET", "/user", "bearer=false basic=false query=false key=true", []string{"X-Key", placeholder + placeholder, "X-Key", "plain"}},
			{"a rule with a path", "POST", "/repos/acme/web", "bearer=true basic=false query=false key=false", []string{"Authorization", "Bearer " + placeholder}},
			{"without placeholder", "POST", "/user", "bearer=false basic=false query=false key=false", nil},
		} {
			t.Run(tt.name, func(t *testing.T) {
				w := newWall(t, echo)
				c := w.client(h2)
				res, body := w.do(c, tt.method, "https://"+host+tt.target, nil, tt.header...)
				if res.StatusCode != http.StatusOK || res.Header.Get("X-Got") != tt.want {
					t.Errorf("status %d, got %s, want %s\n%s", res.StatusCode, res.Header.Get("X-Got"), tt.want, body)
				}
				for _, coded := range []string{value, "theRealValue", base64.StdEncoding.EncodeToString([]byte("user:" + value))} {
					if all := fmt.Sprint(res.Header) + body; strings.Contains(all, coded) {
						t.Errorf("the value is in the response: %s", all)
					}
				}
				if len(tt.header) > 0 && !strings.Contains(body, tt.header[1]) {
					t.Errorf("%s is not in the response:\n%s", tt.header[1], body)
				}
				out := w.outcome(c)
				if want := tt.name != "without placeholder"; slices.Contains(out.Secrets, "TOKEN") != want || len(out.Secrets) > 1 {
					t.Errorf("outcome has secrets %v", out.Secrets)
				}
				if out.Reason != "" || out.Sent < 100 || out.Received < 100 {
					t.Errorf("outcome %+v", out)
				}
			})
		}
	})
}

func TestRefused(t *testing.T) {
	bothProtocols(t, func(t *testing.T, h2 bool) {
		auth := []string{"Authorization", "Bearer " + placeholder}
		for _, tt := range []struct {
			name, method, target string
			header               []string
			status               int
			want                 []string // in the body
		}{
			{"method", "POST", "/user", auth, 403, []string{"secret TOKEN: POST /user is not one of its requests", `paths   = ["/user"]`}},
			{"path", "POST", "/repos/other/x", auth, 403, []string{"POST /repos/other/x"}},
			{"path with ..", "POST", "/repos/acme/../../user", auth, 403, []string{". or .. as a segment"}},
			{"path with an encoded slash", "POST", "/repos/acme/..%2f..%2fuser", auth, 403, []string{"is not one of its requests"}},
			{"in the query", "DELETE", "/user?key=" + placeholder, nil, 403, []string{"DELETE /user"}},
			{"method override", "GET", "/user", append([]string{"X-HTTP-Method-Override", "DELETE"}, auth...), 403, []string{"X-Http-Method-Override"}},
			{"method override in the query", "GET", "/user?_method=delete", auth, 403, []string{"_method"}},
			{"path override", "GET", "/user", append([]string{"X-Original-URL", "/admin"}, auth...), 403, []string{"X-Original-Url"}},
			{"a secret of another host", "GET", "/user", []string{"X-Key", otherHolder}, 403, []string{"secret OTHER: example.com:443 is not one of its hosts", `hosts = ["example.com"]`}},
			{"in the path", "GET", "/bot" + placeholder + "/send", nil, 403, []string{"in the path"}},
			{"too many", "GET", "/", []string{"X-Key", strings.Repeat(placeholder, 17)}, 403, []string{"17 placeholders"}},
			{"host", "GET", "/", append([]string{"Host", "other.example"}, auth...), 421, []string{`another host, "other.example"`}},
			{"port of the host", "GET", "/", append([]string{"Host", host + ":8443"}, auth...), 421, []string{"another host"}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				var mu sync.Mutex
				came := 0
				w := newWall(t, func(http.ResponseWriter, *http.Request) { mu.Lock(); came++; mu.Unlock() })
				c := w.client(h2)
				res, body := w.do(c, tt.method, "https://"+host+tt.target, strings.NewReader("body"), tt.header...)
				if res.StatusCode != tt.status {
					t.Errorf("status %d, want %d", res.StatusCode, tt.status)
				}
				for _, want := range tt.want {
					if !strings.Contains(body, want) {
						t.Errorf("%q is not in the answer:\n%s", want, body)
					}
				}
				out := w.outcome(c)
				if len(out.Denied) != 1 || !strings.HasPrefix(body, "hutch: denied: "+out.Denied[0].Reason) || res.Header.Get("X-Hutch-Denied") != out.Denied[0].Reason || len(out.Secrets) > 0 || out.Reason != "" {
					t.Errorf("outcome %+v of answer %s", out, body)
				}
				mu.Lock()
				defer mu.Unlock()
				if came > 0 {
					t.Error("the request reached the host")
				}
			})
		}
	})
}

// TestRaw writes bytes that no client would.
func TestRaw(t *testing.T) {
	auth := "Authorization: Bearer " + placeholder + "\r\n"
	for _, tt := range []struct{ name, request, want string }{
		{"CONNECT", "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n", "405"},
		{"absolute target of another host", "GET http://other.example/ HTTP/1.1\r\nHost: example.com\r\n" + auth + "\r\n", "421"},
		{"no host", "GET / HTTP/1.0\r\n" + auth + "\r\n", "421"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: example.com\r\nHost: other.example\r\n" + auth + "\r\n", "400"},
		{"two lengths", "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody!", "400"},
		{"another transfer encoding", "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "501"},
		{"a space before the colon", "GET / HTTP/1.1\r\nHost: example.com\r\nAuthorization : x\r\n\r\n", "400"},
		{"a folded header", "GET / HTTP/1.1\r\nHost: example.com\r\n folded\r\n\r\n", "400"},
		{"a huge header", "GET / HTTP/1.1\r\nHost: example.com\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", "431"},
		{"a target without /", "GET x:y HTTP/1.1\r\nHost: example.com\r\n" + auth + "\r\n", "400"},
		{"h2c", "GET /user HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" + auth + "\r\n", "200"},
		{"a hop-by-hop header", "GET /user HTTP/1.1\r\nHost: example.com\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\nProxy-Authorization: x\r\n\r\n", "200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWall(t, func(_ http.ResponseWriter, r *http.Request) {
				for _, hop := range []string{"Upgrade", "Http2-Settings", "X-Hop", "Keep-Alive", "Proxy-Authorization"} {
					if r.Header.Get(hop) != "" {
						t.Errorf("%s came", hop)
					}
				}
			})
			conn := tls.Client(w.dial(host, 443), &tls.Config{RootCAs: w.roots, ServerName: host})
			go func() { _, _ = io.WriteString(conn, tt.request) }()
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.Contains(line, " "+tt.want+" ") {
				t.Errorf("answered %q, %v; want %s", line, err, tt.want)
			}
		})
	}
	t.Run("a request in a chunked body that has a length", func(t *testing.T) {
		var mu sync.Mutex
		var paths []string
		w := newWall(t, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			paths = append(paths, r.URL.Path+" "+string(body))
		})
		conn := tls.Client(w.dial(host, 443), &tls.Config{RootCAs: w.roots, ServerName: host})
		_, _ = io.WriteString(conn, "POST /repos/acme/a HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"+
			"1f\r\nDELETE /user HTTP/1.1\r\nHost: x\r\n\r\n0\r\n\r\n")
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, p := range paths {
			if strings.HasPrefix(p, "/user") {
				t.Errorf("requests %q", paths)
			}
		}
	})
}

func TestServerName(t *testing.T) {
	w := newWall(t, echo)
	conn := tls.Client(w.dial(host, 443), &tls.Config{RootCAs: w.roots, ServerName: "other.example"})
	if err := conn.Handshake(); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("handshake with another name: %v", err)
	}
	if out := <-w.outcomes; len(out.Denied) != 1 || !strings.Contains(out.Denied[0].Reason, `named another host, "other.example"`) {
		t.Errorf("outcome %+v", out)
	}
	conn = tls.Client(w.dial(host, 443), &tls.Config{RootCAs: x509.NewCertPool(), ServerName: host})
	if err := conn.Handshake(); err == nil {
		t.Error("a client without the authority trusts it")
	}
	if out := <-w.outcomes; !strings.Contains(out.Reason, "trust the sandbox's authority") {
		t.Errorf("outcome %+v", out)
	}
}

func TestUntrustedHost(t *testing.T) {
	w := newWall(t, echo)
	w.i.RootCAs = x509.NewCertPool()
	res, body := w.do(w.client(true), "GET", "https://"+host+"/", nil, "Authorization", placeholder)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "the certificate of example.com:443 is not trusted on this machine") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestClearText(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(echo))
	defer plain.Close()
	for _, tt := range []struct {
		name   string
		port   int
		status int
		want   string
	}{
		{host, 80, 403, "is not encrypted"},
		{"host", 8080, 200, "bearer=true"},
	} {
		w := newWall(t, nil)
		w.address = plain.Listener.Addr().String()
		c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return w.dial(tt.name, tt.port), nil }}}
		res, body := w.do(c, "GET", fmt.Sprintf("http://%s:%d/", tt.name, tt.port), nil, "Authorization", "Bearer "+placeholder)
		if res.StatusCode != tt.status || !strings.Contains(body+res.Header.Get("X-Got"), tt.want) || strings.Contains(body, value) {
			t.Errorf("http://%s: %d %s", tt.name, res.StatusCode, body)
		}
		c.CloseIdleConnections()
	}
}

func TestOtherProtocol(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		b, _ := io.ReadAll(conn)
		_, _ = conn.Write(append([]byte("got "), b...))
		_ = conn.Close()
	}()
	w := newWall(t, nil)
	w.address = l.Addr().String()
	conn := w.dial(host, 443)
	_, _ = io.WriteString(conn, "\x00\x01 binary "+placeholder)
	_ = conn.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(conn)
	if want := "got \x00\x01 binary " + placeholder; err != nil || string(b) != want {
		t.Errorf("got %q, %v, want %q", b, err, want)
	}
	if out := <-w.outcomes; out.Sent != int64(len(b)-4) || out.Received != int64(len(b)) {
		t.Errorf("outcome %+v of %d bytes", out, len(b))
	}
}

// TestStreams has both ends wait for each other: an answer that is buffered would end in a deadlock.
func TestStreams(t *testing.T) {
	bothProtocols(t, func(t *testing.T, h2 bool) {
		t.Run("server-sent events", func(t *testing.T) {
			next := make(chan struct{})
			w := newWall(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for range 3 {
					fmt.Fprintf(w, "data: %s\n\n", r.Header.Get("Authorization"))
					w.(http.Flusher).Flush()
					<-next
				}
			})
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/", nil)
			r.Header.Set("Authorization", placeholder)
			res, err := w.client(h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			lines := bufio.NewReader(res.Body)
			for range 3 {
				line, err := lines.ReadString('\n')
				if err != nil || line != "data: "+placeholder+"\n" {
					t.Fatalf("event %q, %v", line, err)
				}
				_, _ = lines.ReadString('\n')
				next <- struct{}{}
			}
		})
		t.Run("a body both ways, with trailers", func(t *testing.T) {
			w := newWall(t, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).EnableFullDuplex()
				w.Header().Set("Trailer", "X-Out")
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				lines := bufio.NewScanner(r.Body)
				for lines.Scan() {
					fmt.Fprintln(w, "re: "+lines.Text())
					_ = http.NewResponseController(w).Flush()
				}
				w.Header().Set("X-Out", r.Trailer.Get("X-In")+" "+r.Header.Get("Authorization"))
			})
			pr, pw := io.Pipe()
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+host+"/repos/acme/x", pr)
			r.Header.Set("Authorization", placeholder)
			r.Trailer = http.Header{"X-In": nil}
			res, err := w.client(h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			lines := bufio.NewReader(res.Body)
			for _, word := range []string{"one", "two"} {
				_, _ = fmt.Fprintln(pw, word)
				if line, err := lines.ReadString('\n'); err != nil || line != "re: "+word+"\n" {
					t.Fatalf("line %q, %v", line, err)
				}
			}
			r.Trailer.Set("X-In", "in")
			_ = pw.Close()
			if _, err := io.ReadAll(lines); err != nil {
				t.Fatal(err)
			}
			if got, want := res.Trailer.Get("X-Out"), "in "+placeholder; got != want {
				t.Errorf("trailer %q, want %q", got, want)
			}
		})
		t.Run("100-continue", func(t *testing.T) {
			w := newWall(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, _ = w.Write(body)
			})
			c := w.client(h2)
			c.Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
			if _, body := w.do(c, "POST", "https://"+host+"/", strings.NewReader("body"), "Expect", "100-continue"); body != "body" {
				t.Errorf("body %q", body)
			}
		})
		t.Run("gzip and early hints", func(t *testing.T) {
			w := newWall(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", r.Header.Get("Authorization"))
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, strings.Repeat("x", 40<<10)+r.Header.Get("Authorization"))
				_ = z.Close()
			})
			res, body := w.do(w.client(h2), "GET", "https://"+host+"/", nil, "Authorization", placeholder, "Accept-Encoding", "gzip, br")
			if !strings.HasSuffix(body, "x"+placeholder) || res.Header.Get("Link") != placeholder {
				t.Errorf("header %v, body of %d bytes ends with %q", res.Header, len(body), body[max(0, len(body)-60):])
			}
		})
	})
}

func TestWebSocket(t *testing.T) {
	w := newWall(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != value || r.Header.Get("Sec-WebSocket-Extensions") != "" {
			t.Errorf("header %v", r.Header)
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, "re: "+line+value+"\n")
	})
	conn := tls.Client(w.dial(host, 443), &tls.Config{RootCAs: w.roots, ServerName: host})
	_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: "+placeholder+"\r\n\r\n")
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil) //nolint:bodyclose // a 101 has none
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	b, err := io.ReadAll(br)
	if want := "re: hello\n" + placeholder[:len(value)] + "\n"; err != nil || string(b) != want {
		t.Errorf("got %q, %v, want %q", b, err, want)
	}
	_ = conn.Close()
	if out := <-w.outcomes; !slices.Equal(out.Secrets, []string{"TOKEN"}) || out.Reason != "" {
		t.Errorf("outcome %+v", out)
	}
}

// TestEnd has a host that never answers: the end of the context ends the connection.
func TestEnd(t *testing.T) {
	came := make(chan struct{})
	w := newWall(t, func(_ http.ResponseWriter, r *http.Request) { close(came); <-r.Context().Done() })
	a, b := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan Outcome)
	go func() {
		done <- w.i.Serve(ctx, b, host, 443, func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", w.address)
		})
	}()
	conn := tls.Client(a, &tls.Config{RootCAs: w.roots, ServerName: host})
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	<-came
	cancel()
	<-done
}

func TestCovers(t *testing.T) {
	w := newWall(t, nil)
	for _, tt := range []struct {
		name string
		port int
		want bool
	}{
		{"example.com", 443, true}, {"EXAMPLE.com.", 443, true}, {"example.com", 80, true}, {"example.com", 22, false},
		{"x.example.com", 443, false}, {"host", 8080, true}, {"host", 443, false},
		{"a.below.example", 8443, true}, {"a.b.below.example", 8443, true}, {"below.example", 8443, false}, {"a.below.example", 443, false},
	} {
		if got := w.i.Covers(tt.name, tt.port); got != tt.want {
			t.Errorf("%s:%d: %v, want %v", tt.name, tt.port, got, tt.want)
		}
	}
}

func TestNew(t *testing.T) {
	authority, err := network.NewAuthority([]string{host}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	const hidden = "never-in-an-error"
	good := sdk.Secret{Name: "N", Placeholder: placeholder, Value: hidden, Hosts: []string{host}}
	for name, change := range map[string]func(*sdk.Secret){
		"placeholder": func(s *sdk.Secret) { s.Placeholder = "short" },
		"characters":  func(s *sdk.Secret) { s.Placeholder = "hutch placeholder with spaces" },
		"short":       func(s *sdk.Secret) { s.Value = "abc" },
		"long":        func(s *sdk.Secret) { s.Value = hidden + strings.Repeat("x", MaxValue) },
		"line break":  func(s *sdk.Secret) { s.Value = hidden + "\r\nX: y" },
		"space":       func(s *sdk.Secret) { s.Value = hidden + " " },
		"no hosts":    func(s *sdk.Secret) { s.Hosts = nil },
		"address":     func(s *sdk.Secret) { s.Hosts = []string{"10.0.0.1:443"} },
		"bad host":    func(s *sdk.Secret) { s.Hosts = []string{"https://x"} },
		"bad rule":    func(s *sdk.Secret) { s.Rules = []sdk.SecretRule{{Paths: []string{"x"}}} },
	} {
		s := good
		change(&s)
		if _, err := New([]sdk.Secret{s}, authority, nil); err == nil || strings.Contains(err.Error(), hidden) || !strings.Contains(err.Error(), "secret N") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New([]sdk.Secret{good}, nil, nil); err == nil {
		t.Error("no authority is needed")
	}
}
