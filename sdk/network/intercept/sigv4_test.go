package intercept

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// awsKey is the key of AWS's test vectors.
const awsKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

// TestSignatures reads requests of AWS's test suite for Signature Version 4, signed in the header and in the query.
func TestSignatures(t *testing.T) {
	text, err := os.ReadFile("testdata/sigv4.txt") // of awslabs/aws-c-auth, tests/aws-signing-test-suite, Apache-2.0
	if err != nil {
		t.Fatal(err)
	}
	files := txtar.Parse(text).Files
	if len(files) < 20 {
		t.Fatalf("%d requests", len(files))
	}
	for _, f := range files {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.TrimRight(string(f.Data), "\n") + "\n\n")))
		if strings.Contains(f.Name, "form") {
			r, err = http.ReadRequest(bufio.NewReader(strings.NewReader(string(f.Data))))
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		sum := sha256.Sum256(body)
		payload := hex.EncodeToString(sum[:])
		g := signatureOf(r)
		if g == nil || !g.by(awsKey, r, payload) || g.inQuery != strings.HasSuffix(f.Name, "query") {
			t.Errorf("%s: %+v\n%s", f.Name, g, f.Data)
			continue
		}
		if g.by("another key", r, payload) || !g.by(awsKey, r, payload) {
			t.Errorf("%s: any key will do", f.Name)
		}
		g.signer = &secret{value: "another key"}
		g.resign(r)
		if again := signatureOf(r); again == nil || !again.by("another key", r, payload) || again.by(awsKey, r, payload) {
			t.Errorf("%s: signed again: %+v", f.Name, again)
		}
	}
}

// TestSignedAgain has commands sign with a placeholder, and the host look at the signature.
func TestSignedAgain(t *testing.T) {
	const credential = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
	for _, tt := range []struct {
		name, method, target, key, body, payload string
		signed                                   string
		status                                   int
		want                                     string // in the body of the answer
	}{
		{"the placeholder", "GET", "/a/b?x=y&a=b", placeholder, "", "", "host;x-amz-date", 200, "value"},
		{"a body", "POST", "/repos/acme/x", placeholder, `{"a": 1}`, "", "content-type;host;x-amz-date", 200, "value"},
		{"a body that is not signed", "POST", "/repos/acme/x", placeholder, "abc", unsignedPayload, "host;x-amz-content-sha256;x-amz-date", 200, "value"},
		{"another key", "GET", "/", awsKey, "", "", "host;x-amz-date", 200, "other"},
		{"with the placeholder of a token", "GET", "/", placeholder, "", "", "host;x-amz-date;x-amz-security-token", 200, "value"},
		{"an encoding", "GET", "/", placeholder, "", "", "accept-encoding;host;x-amz-date", 200, "value"},
		{"a request of no rule", "DELETE", "/", placeholder, "", "", "host;x-amz-date", 403, "secret TOKEN: DELETE / is not one of its requests"},
		{"signed chunks", "GET", "/", placeholder, "", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "host;x-amz-content-sha256;x-amz-date", 403, "chunks"},
		{"a large body", "POST", "/repos/acme/x", placeholder, strings.Repeat("x", maxSignedBody+1), "", "host;x-amz-date", 413, "8 MiB"},
	} {
		bothProtocols(t, func(t *testing.T, h2 bool) {
			t.Run(tt.name, func(t *testing.T) {
				w := newWall(t, func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					sum := sha256.Sum256(body)
					payload := hex.EncodeToString(sum[:])
					if tt.payload != "" {
						payload = tt.payload
					}
					switch g := signatureOf(r); {
					case string(body) != tt.body:
						fmt.Fprintf(w, "another body: %q", body)
					case g != nil && g.by(value, r, payload):
						_, _ = io.WriteString(w, "value")
					case g != nil && g.by(awsKey, r, payload):
						_, _ = io.WriteString(w, "other")
					default:
						fmt.Fprint(w, "wrong: ", r.Header)
					}
				})
				r, err := http.NewRequest(tt.method, "https://"+host+tt.target, strings.NewReader(tt.body))
				if err != nil {
					t.Fatal(err)
				}
				header := []string{"X-Amz-Date", "20150830T123600Z", "Content-Type", "application/json"}
				if strings.Contains(tt.signed, "token") {
					header = append(header, "X-Amz-Security-Token", placeholder)
				}
				if strings.Contains(tt.signed, "encoding") {
					header = append(header, "Accept-Encoding", "identity")
				}
				sum := sha256.Sum256([]byte(tt.body))
				g := &signature{scope: strings.TrimPrefix(credential, "AKIDEXAMPLE/"), date: header[1], signed: strings.Split(tt.signed, ";"), payload: hex.EncodeToString(sum[:])}
				if tt.payload != "" {
					g.payload = tt.payload
					header = append(header, "X-Amz-Content-Sha256", tt.payload)
				}
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				header = append(header, "Authorization", fmt.Sprintf("%s Credential=%s, SignedHeaders=%s, Signature=%s", sigAlgorithm, credential, tt.signed, g.of(tt.key, r)))
				res, body := w.do(w.client(h2), tt.method, "https://"+host+tt.target, strings.NewReader(tt.body), header...)
				if res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
					t.Errorf("%d %q, want %d %q", res.StatusCode, body, tt.status, tt.want)
				}
			})
		})
	}
}

// FuzzSignature reads signatures as a command sends them.
func FuzzSignature(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=A/20150830/us-east-1/s/aws4_request, SignedHeaders=host;x-amz-date, Signature="+strings.Repeat("a", 64), "a=b&c=%zz&=", "/%2f//..")
	f.Add("", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=A%2F1%2Fr%2Fs%2Faws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature="+strings.Repeat("0", 64), "/")
	f.Fuzz(func(t *testing.T, header, query, path string) {
		r, err := http.NewRequest(http.MethodGet, "https://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", header)
		r.URL.RawQuery, r.URL.Path = query, path
		g := signatureOf(r)
		if g == nil {
			return
		}
		if g.by("some key", r, unsignedPayload) {
			t.Error("a signature by nobody")
		}
		g.signer = &secret{value: "a key that nobody knows"}
		if g.resign(r); strings.Contains(fmt.Sprint(r.Header, r.URL), g.signer.value) {
			t.Error("the key is in the request")
		}
	})
}
