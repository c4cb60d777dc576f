package daemon

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const tokenHeader = "X-Access-Token"

func sameToken(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Signature returns what stands for a sandbox's token in the URL of one file, for one operation ("read" or "write") as
// one user. Path, user and expiry are the strings of the query, as they are there; "" for the default user, and for no
// expiry.
func Signature(path, operation, user, token, expires string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// mayUse reports whether a request for /files carries the sandbox's token or a signature.
func mayUse(r *http.Request, query url.Values, token, operation string) error {
	if token == "" {
		return nil
	}
	if sent := r.Header.Get(tokenHeader); sent != "" {
		if !sameToken(sent, token) {
			return errors.New("access token present in header but does not match")
		}
		return nil
	}
	if !query.Has("signature") {
		return errors.New("missing signature query parameter")
	}
	expires := query.Get("signature_expiration")
	want := Signature(query.Get("path"), operation, query.Get("username"), token, expires)
	if !sameToken(query.Get("signature"), want) {
		return errors.New("invalid signature")
	}
	if expires != "" {
		at, err := strconv.ParseInt(expires, 10, 64)
		if err != nil {
			return fmt.Errorf("signature_expiration: %w", err)
		}
		if at < time.Now().Unix() {
			return errors.New("signature is already expired")
		}
	}
	return nil
}
