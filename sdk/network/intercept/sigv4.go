package intercept

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	sigAlgorithm  = "AWS4-HMAC-SHA256"
	maxSignedBody = 8 << 20 // bytes of a body that has to be read for its signature
	maxSigning    = 8       // bodies of one command that are held at a time
)

// signature is the signature of a request by AWS's Signature Version 4, in the header Authorization or in the query. A
// command signs with the placeholder of a secret as the key; resign makes it that of the value.
type signature struct {
	signer *secret // whose placeholder was the key

	scope   string   // DATE/REGION/SERVICE/aws4_request
	date    string   // time of the request
	signed  []string // names of the signed headers, lower case
	inQuery bool
	hex     string // the signature itself
	payload string // hash of the body, or what stands for it
	once    bool   // the path is encoded once, as for S3
}

// signatureOf reads the signature of r, whose payload is not known yet; nil where it has none.
func signatureOf(r *http.Request) *signature {
	fields, found := strings.CutPrefix(r.Header.Get("Authorization"), sigAlgorithm)
	g := &signature{date: r.Header.Get("X-Amz-Date")}
	credential, signed := "", ""
	if found {
		for f := range strings.SplitSeq(fields, ",") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(f), "="); name {
			case "Credential":
				credential = value
			case "SignedHeaders":
				signed = value
			case "Signature":
				g.hex = value
			}
		}
	} else if q := r.URL.Query(); q.Get("X-Amz-Algorithm") == sigAlgorithm {
		g.inQuery, g.hex, g.date = true, q.Get("X-Amz-Signature"), q.Get("X-Amz-Date")
		credential, signed = q.Get("X-Amz-Credential"), q.Get("X-Amz-SignedHeaders")
	}
	g.signed = strings.Split(strings.ToLower(signed), ";")
	parts := strings.Split(credential, "/")
	if len(parts) < 5 || len(g.hex) != 2*sha256.Size || signed == "" {
		return nil
	}
	g.scope = strings.Join(parts[len(parts)-4:], "/")
	return g
}

// by reports whether the signature of r was made with key. It leaves in g how: services differ in what they sign of the
// path, and of the body of a request that is signed in the query.
func (g *signature) by(key string, r *http.Request, payload string) bool {
	payloads := []string{payload}
	if g.inQuery && payload != unsignedPayload {
		payloads = append(payloads, unsignedPayload)
	}
	for _, g.payload = range payloads {
		for _, g.once = range []bool{false, true} {
			if subtle.ConstantTimeCompare([]byte(g.of(key, r)), []byte(g.hex)) == 1 {
				return true
			}
		}
	}
	return false
}

const unsignedPayload = "UNSIGNED-PAYLOAD"

// of computes the signature of r with key, as
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html describes it.
func (g *signature) of(key string, r *http.Request) string {
	path := r.URL.EscapedPath()
	if g.once {
		path, _ = url.PathUnescape(path) // EscapedPath is valid
	}
	var b strings.Builder
	b.WriteString(r.Method + "\n" + awsEscape(path, true) + "\n" + canonicalQuery(r.URL.RawQuery) + "\n")
	for _, name := range g.signed {
		values := slices.Clone(r.Header.Values(name))
		switch {
		case name == "host":
			values = []string{r.Host}
		case name == "content-length" && len(values) == 0:
			values = []string{strconv.FormatInt(r.ContentLength, 10)}
		}
		for i, v := range values {
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		b.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	b.WriteString("\n" + strings.Join(g.signed, ";") + "\n" + g.payload)
	sum := sha256.Sum256([]byte(b.String()))
	derived := []byte("AWS4" + key)
	for part := range strings.SplitSeq(g.scope, "/") {
		derived = hmacSHA256(derived, part)
	}
	return hex.EncodeToString(hmacSHA256(derived, sigAlgorithm+"\n"+g.date+"\n"+g.scope+"\n"+hex.EncodeToString(sum[:])))
}

func hmacSHA256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// canonicalQuery is a query as it is signed: sorted, without the signature.
func canonicalQuery(raw string) string {
	var list [][2]string
	for field := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(field, "=")
		name, nameErr := url.PathUnescape(strings.ReplaceAll(name, "+", " "))
		value, valueErr := url.PathUnescape(strings.ReplaceAll(value, "+", " "))
		if field != "" && nameErr == nil && valueErr == nil && name != "X-Amz-Signature" {
			list = append(list, [2]string{awsEscape(name, false), awsEscape(value, false)})
		}
	}
	slices.SortFunc(list, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	fields := make([]string, len(list))
	for i, f := range list {
		fields[i] = f[0] + "=" + f[1]
	}
	return strings.Join(fields, "&")
}

func awsEscape(s string, slash bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if isAlnum(c) || strings.IndexByte("-._~", c) >= 0 || c == '/' && slash {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}

// resign signs out, which is as it leaves but for the signature, with the value.
func (g *signature) resign(out *http.Request) {
	now := g.of(g.signer.value, out)
	if g.inQuery {
		out.URL.RawQuery = strings.Replace(out.URL.RawQuery, g.hex, now, 1)
		return
	}
	out.Header.Set("Authorization", strings.Replace(out.Header.Get("Authorization"), g.hex, now, 1))
}

// signed finds out whether a placeholder that is for this host is the key of r's signature; nil when none is. It may
// read the body of r, and puts back what it read. release has to be called when r is over.
func (s *session) signed(r *http.Request) (g *signature, no *denial, release func()) {
	release = func() {}
	g = signatureOf(r)
	if g == nil || !slices.ContainsFunc(s.i.secrets, func(x *secret) bool { return x.isFor(s.name, s.port) }) {
		return nil, nil, release
	}
	payload := r.Header.Get("X-Amz-Content-Sha256")
	if payload == "" {
		select {
		case s.i.signing <- struct{}{}:
			release = func() { <-s.i.signing }
		case <-r.Context().Done():
			return nil, &denial{http.StatusServiceUnavailable, "", "the connection ended", ""}, release
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, maxSignedBody+1))
		if err != nil || len(body) > maxSignedBody {
			return nil, &denial{http.StatusRequestEntityTooLarge, "",
				"a request with a signature of AWS has a body that cannot be read, or of more than 8 MiB, and no " +
					"X-Amz-Content-Sha256", ""}, release
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		sum := sha256.Sum256(body)
		payload = hex.EncodeToString(sum[:])
	}
	for _, x := range s.i.secrets {
		if !x.isFor(s.name, s.port) || !g.by(x.placeholder, r, payload) {
			continue
		}
		if g.signer = x; strings.HasPrefix(g.payload, "STREAMING-"+sigAlgorithm) {
			return nil, &denial{http.StatusForbidden, "secret " + x.name,
				"secret " + x.name +
					": the chunks of the body are signed one by one, which hutch does not do; send it unsigned, over TLS", ""}, release
		}
		return g, nil, release
	}
	return nil, nil, release
}
