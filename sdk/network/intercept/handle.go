package intercept

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
)

var (
	discard = log.New(io.Discard, "", 0)
	copies  buffers
)

// denial is why a request does not leave.
type denial struct {
	status int
	rule   string // see [Denial]
	reason string // one line
	fix    string // what to write in the run file
}

// handle passes one request on, or says why not.
func (s *session) handle(w http.ResponseWriter, r *http.Request, transport http.RoundTripper) {
	if !s.begin() {
		panic(http.ErrAbortHandler)
	}
	defer s.active.Done()
	start := time.Now()
	rec := sdk.HTTPRequest{Time: start.UTC().Format(time.RFC3339Nano), Method: clip(r.Method),
		Path: clip(r.URL.EscapedPath())}
	defer func() {
		rec.Took = time.Since(start)
		s.record(rec)
	}()
	uses, sig, release, no := s.admit(r)
	defer release()
	if no == nil {
		no = s.i.meter.begin(r)
	}
	if no != nil {
		rec.Refused, rec.Status = true, no.status
		s.deny(Denial{no.rule, no.reason})
		if no.status == http.StatusPaymentRequired {
			usedUp(w, no.reason)
			return
		}
		answer(w, no.status, "denied: "+no.reason, no.fix)
		return
	}
	s.mu.Lock()
	for _, x := range uses {
		if !slices.Contains(s.used, x.name) {
			s.used = append(s.used, x.name)
		}
	}
	s.mu.Unlock()

	var inForm atomic.Pointer[secret]
	sent := watch(r, s.i.secrets, func(x *secret) error {
		if isForm(r) {
			inForm.Store(x)
			return errForm
		}
		s.deny(Denial{"secret " + x.name,
			fmt.Sprintf("secret %s: its placeholder in the body of a request stayed as it is: values go into headers and the "+
				"query", x.name)})
		return nil
	})
	refuseForm := func(w http.ResponseWriter) bool {
		x := inForm.Load()
		if x == nil {
			return false
		}
		no := Denial{"secret " + x.name,
			fmt.Sprintf("secret %s: its placeholder is in a form: it is replaced in headers and in the query only", x.name)}
		s.deny(no)
		answer(w, http.StatusForbidden, "denied: "+no.Reason, "")
		return true
	}
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex() // bodies go both ways at once, as in HTTP/2
	}
	rw := &responseWriter{ResponseWriter: w, method: r.Method, meter: &s.i.meter}
	defer func() { // also when the command has gone
		rec.Status, rec.Sent, rec.Received = rw.status, sent.Load(), rw.received
		if rw.tap != nil {
			rw.tap.end()
			rec.Model, rec.Tokens = redactString(rw.tap.model, rw.pairs), rw.tap.tokens
		}
		s.i.meter.end(&rec)
	}()
	if isForm(r) { // before the host can answer
		head, _ := io.ReadAll(io.LimitReader(r.Body, formAhead))
		if refuseForm(rw) {
			return
		}
		if len(head) > 0 {
			r.Body = ahead{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
		}
	}
	proxy := httputil.ReverseProxy{
		Rewrite:       func(pr *httputil.ProxyRequest) { rw.pairs = slices.Concat(s.redacts, s.rewrite(pr, uses, sig)) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      discard,
		BufferPool:    &copies,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if refuseForm(w) {
				return
			}
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the command has gone
			}
			reason := redactString(upstreamReason(net.JoinHostPort(s.name, strconv.Itoa(s.port)), err), rw.pairs)
			s.note(reason)
			answer(w, http.StatusBadGateway, reason, "")
		},
	}
	proxy.ServeHTTP(rw, r)
	rw.finish()
}

func upstreamReason(host string, err error) string {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Sprintf("the certificate of %s is not trusted on this machine: %v", host, untrusted.Err)
	}
	return fmt.Sprintf("%s: %v", host, err)
}

// answer is an answer of this package instead of the host's.
func answer(w http.ResponseWriter, status int, reason, fix string) {
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if why, denied := strings.CutPrefix(reason, "denied: "); denied {
		h.Set("X-Hutch-Denied", why)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "hutch: "+reason+"\n"+fix)
}

// admit returns the secrets whose placeholders r has, and the signature that one of them made, or why r does not leave.
// It decides by what the host will read: the path is compared in the form in which it is sent. release has to be called
// when r is over.
func (s *session) admit(r *http.Request) (uses []*secret, sig *signature, release func(), no *denial) {
	release = func() {}
	path := r.URL.EscapedPath()
	switch host, port := splitHost(r.Host); {
	case r.Method == http.MethodConnect:
		return nil, nil, release, &denial{http.StatusMethodNotAllowed, "",
			fmt.Sprintf("CONNECT to %.100q: connections are not relayed", r.Host), ""}
	case network.Canonical(host) != s.name || port != "" && port != strconv.Itoa(s.port):
		return nil, nil, release, &denial{http.StatusMisdirectedRequest, "",
			fmt.Sprintf("a request to %s on port %d was for another host, %.100q", s.name, s.port, r.Host), ""}
	case r.URL.Opaque != "" || path != "*" && !strings.HasPrefix(path, "/"):
		return nil, nil, release, &denial{http.StatusBadRequest, "",
			fmt.Sprintf("%s %.100q: want a path that begins with /", r.Method, r.URL.Opaque+path), ""}
	}
	if sig, no, release = s.signed(r); no != nil {
		return nil, nil, release, no
	}
	count := 0
	for _, x := range s.i.secrets {
		n := strings.Count(r.URL.RawQuery, x.placeholder)
		for _, values := range r.Header {
			for _, v := range values {
				_, login, _ := basic(v)
				n += strings.Count(v, x.placeholder) + strings.Count(login, x.placeholder)
			}
		}
		if strings.Contains(path, x.placeholder) {
			return nil, nil, release, &denial{http.StatusForbidden, "secret " + x.name,
				fmt.Sprintf("secret %s: its placeholder is in the path: it is replaced in headers and in the query only", x.name),
				""}
		}
		if sig != nil && sig.signer == x {
			n++
		}
		if n == 0 {
			continue
		}
		if no := s.refuse(x, r, path); no != nil {
			return nil, nil, release, no
		}
		count += n
		uses = append(uses, x)
	}
	if count > maxUses {
		return nil, nil, release, &denial{http.StatusForbidden, "",
			fmt.Sprintf("a request has %d placeholders of secrets, more than %d", count, maxUses), ""}
	}
	return uses, sig, release, nil
}

// refuse says why r must not carry x; nil when it may.
func (s *session) refuse(x *secret, r *http.Request, path string) *denial {
	where := fmt.Sprintf("%s:%d", s.name, s.port)
	if !x.isFor(s.name, s.port) {
		host := s.name
		if s.port != 443 {
			host = where
		}
		return &denial{http.StatusForbidden, "secret " + x.name,
			fmt.Sprintf("secret %s: %s is not one of its hosts", x.name, where),
			fmt.Sprintf("To allow it, add it in the run file:\n\n  secret %q {\n    hosts = [%q]\n  }\n", x.name, host)}
	}
	if !s.tls && s.name != network.Host {
		return &denial{http.StatusForbidden, "secret " + x.name,
			fmt.Sprintf("secret %s: http://%s is not encrypted; use https", x.name, where), ""}
	}
	if len(x.rules) == 0 {
		return nil
	}
	if override := overrides(r); override != "" {
		return &denial{http.StatusForbidden, "secret " + x.name,
			fmt.Sprintf("secret %s: %s asks the host for another method or path than that of the request", x.name, override), ""}
	}
	if slices.ContainsFunc(x.rules, func(rule requestRule) bool { return rule.admits(r.Method, path) }) {
		return nil
	}
	shown := path
	if len(shown) > 200 {
		shown = shown[:200] + "…"
	}
	no := &denial{http.StatusForbidden, "secret " + x.name,
		fmt.Sprintf("secret %s: %s %s is not one of its requests", x.name, r.Method, shown), ""}
	if _, err := plainPath(path); err != nil {
		no.reason += ": " + err.Error()
	} else if shown == path {
		no.fix = fmt.Sprintf("To allow it, add it in the run file:\n\n  secret %q {\n    rule {\n      methods = [%q]\n   "+
			"   paths   = [%q]\n    }\n  }\n", x.name, r.Method, path)
	}
	return no
}

// overrides names what makes some servers act on another method or path than the request's.
func overrides(r *http.Request) string {
	for _, name := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Url",
		"X-Rewrite-Url"} {
		if len(r.Header[name]) > 0 {
			return name
		}
	}
	if r.URL.Query().Has("_method") {
		return "_method in the query"
	}
	return ""
}

// splitHost splits a Host header, whose port is optional.
func splitHost(s string) (host, port string) {
	if host, port, ok := strings.Cut(s, ":"); ok {
		return host, cmp.Or(port, "0")
	}
	return s, ""
}

// basic reads the value of a header as Basic credentials.
func basic(value string) (scheme, login string, ok bool) {
	scheme, coded, found := strings.Cut(value, " ")
	if !found || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(coded), "="))
	return scheme, string(plain), err == nil
}

// rewrite makes the request that leaves: the same one, with the values of uses in it, and signed with one. It returns
// what to look for in the response besides the values.
func (s *session) rewrite(pr *httputil.ProxyRequest, uses []*secret, sig *signature) (sent []pair) {
	out := pr.Out
	out.URL.Scheme, out.URL.Host, out.URL.RawQuery = "http", net.JoinHostPort(s.name, strconv.Itoa(s.port)),
		pr.In.URL.RawQuery
	if s.tls {
		out.URL.Scheme = "https"
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v := pr.In.Header[name]; v != nil {
			out.Header[name] = slices.Clone(v) // ReverseProxy removes them
		}
	}
	out.Trailer = pr.In.Trailer // filled in once the body has been read
	// The transport asks for gzip itself and decodes it, so that values are found in the response.
	out.Header.Del("Accept-Encoding")
	out.Header.Del("Sec-Websocket-Extensions") // compression
	if up := out.Header.Get("Upgrade"); up != "" && !strings.EqualFold(up, "websocket") {
		out.Header.Del("Upgrade") // a host may ignore it, and then answers the request
		out.Header.Del("Connection")
	}
	for _, x := range uses {
		out.URL.RawQuery = strings.ReplaceAll(out.URL.RawQuery, x.placeholder, url.QueryEscape(x.value))
	}
	for _, values := range out.Header {
		for n, v := range values {
			if scheme, login, ok := basic(v); ok {
				full := login
				for _, x := range uses {
					full = strings.ReplaceAll(full, x.placeholder, x.value)
				}
				if full != login {
					was, now := base64.StdEncoding.EncodeToString([]byte(login)), base64.StdEncoding.EncodeToString([]byte(full))
					sent = append(sent, pair{now, was})
					values[n] = scheme + " " + now
					continue
				}
			}
			for _, x := range uses {
				values[n] = strings.ReplaceAll(values[n], x.placeholder, x.value)
			}
		}
	}
	if sig != nil {
		if slices.Contains(sig.signed, "accept-encoding") {
			out.Header.Set("Accept-Encoding", "identity")
		}
		sig.resign(out)
	}
	return sent
}

// responseWriter puts placeholders where a response has values.
type responseWriter struct {
	http.ResponseWriter
	method string
	pairs  []pair
	body   *redactor // once the header is out

	meter    *meter
	tap      *tap // once the header is out, maybe
	status   int
	received int64
}

func (w *responseWriter) WriteHeader(status int) {
	h := w.Header()
	w.redactHeader()
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	if status >= 200 {
		w.tap = newTap(w.meter, h)
		w.body = newRedactor(w.pairs, shownOfValue)
		if h.Get("Content-Length") != "" {
			w.body.early = 0 // it ends, with nobody waiting in between
		}
		if w.method != http.MethodHead && status != http.StatusNotModified {
			h.Del("Content-Length") // a placeholder has another length than its value
		}
		h.Del("Alt-Svc") // HTTP/3 cannot be reached
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) redactHeader() {
	for _, values := range w.Header() {
		for n := range values {
			values[n] = redactString(values[n], w.pairs)
		}
	}
}

func (w *responseWriter) Write(p []byte) (int, error) {
	if w.body == nil {
		w.WriteHeader(http.StatusOK)
	}
	w.received += int64(len(p))
	w.tap.add(p)
	if out := w.body.add(p); len(out) > 0 {
		if _, err := w.ResponseWriter.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// finish writes what was held back, once the response is whole; the header then has its trailers.
func (w *responseWriter) finish() {
	w.redactHeader()
	if w.body == nil {
		return
	}
	if out := w.body.end(); len(out) > 0 {
		_, _ = w.ResponseWriter.Write(out)
	}
}

func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack gives ReverseProxy the connection of a WebSocket. Frames have a length in front, so here values become text
// of the same length.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	pairs := make([]pair, len(w.pairs))
	for n, p := range w.pairs {
		pairs[n] = pair{p.value, sameLength(p.placeholder, len(p.value))}
	}
	u := &upgraded{Conn: conn, redactor: newRedactor(pairs, shownOfValue)}
	return u, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(u)), nil
}

func sameLength(s string, n int) string {
	if n <= len(s) {
		return s[:n]
	}
	return s + strings.Repeat("*", n-len(s))
}

// upgraded is the command's end of a WebSocket. One goroutine writes.
type upgraded struct {
	net.Conn
	redactor *redactor
}

func (u *upgraded) Write(p []byte) (int, error) {
	if out := u.redactor.add(p); len(out) > 0 {
		if _, err := u.Conn.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// CloseWrite ends the command's reading, as the host did.
func (u *upgraded) CloseWrite() error {
	if _, err := u.Conn.Write(u.redactor.end()); err != nil {
		return err
	}
	half, ok := u.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
