package functions

import (
	"crypto/md5" // #nosec G501 -- a checksum that users ask for by name
	"crypto/rand"
	"crypto/sha1" // #nosec G505 -- likewise
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// stringFunc makes a function of strings.
func stringFunc(impl func(args ...string) (cty.Value, error), ret cty.Type, params ...string) function.Function {
	spec := &function.Spec{
		Type: function.StaticReturnType(ret),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			s := make([]string, len(args))
			for i, a := range args {
				s[i] = a.AsString()
			}
			return impl(s...)
		},
	}
	for _, p := range params {
		spec.Params = append(spec.Params, function.Parameter{Name: p, Type: cty.String})
	}
	return function.New(spec)
}

var (
	startsWith = stringFunc(func(s ...string) (cty.Value, error) { return cty.BoolVal(strings.HasPrefix(s[0], s[1])), nil },
		cty.Bool, "string", "prefix")
	endsWith = stringFunc(func(s ...string) (cty.Value, error) { return cty.BoolVal(strings.HasSuffix(s[0], s[1])), nil },
		cty.Bool, "string", "suffix")
	strContains = stringFunc(func(s ...string) (cty.Value, error) { return cty.BoolVal(strings.Contains(s[0], s[1])), nil },
		cty.Bool, "string", "substring")
	baseName = stringFunc(func(s ...string) (cty.Value, error) { return cty.StringVal(path.Base(s[0])), nil }, cty.String, "path")
	dirName  = stringFunc(func(s ...string) (cty.Value, error) { return cty.StringVal(path.Dir(s[0])), nil }, cty.String, "path")

	urlEncode = stringFunc(func(s ...string) (cty.Value, error) { return cty.StringVal(url.QueryEscape(s[0])), nil }, cty.String, "string")
	urlDecode = stringFunc(func(s ...string) (cty.Value, error) {
		v, err := url.QueryUnescape(s[0])
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(0, "the string is not URL-encoded")
		}
		return text(v)
	}, cty.String, "string")
	base64Encode = stringFunc(func(s ...string) (cty.Value, error) {
		return cty.StringVal(base64.StdEncoding.EncodeToString([]byte(s[0]))), nil
	}, cty.String, "string")
	base64Decode = stringFunc(func(s ...string) (cty.Value, error) {
		v, err := base64.StdEncoding.DecodeString(s[0])
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(0, "the string is not base64")
		}
		return text(string(v))
	}, cty.String, "string")

	hashMD5    = hashFunc(func(b []byte) []byte { h := md5.Sum(b); return h[:] }, hex.EncodeToString)  // #nosec G401
	hashSHA1   = hashFunc(func(b []byte) []byte { h := sha1.Sum(b); return h[:] }, hex.EncodeToString) // #nosec G401
	hashSHA256 = hashFunc(func(b []byte) []byte { h := sha256.Sum256(b); return h[:] }, hex.EncodeToString)
	hashSHA512 = hashFunc(func(b []byte) []byte { h := sha512.Sum512(b); return h[:] }, hex.EncodeToString)

	base64SHA256 = hashFunc(func(b []byte) []byte { h := sha256.Sum256(b); return h[:] }, base64.StdEncoding.EncodeToString)
	base64SHA512 = hashFunc(func(b []byte) []byte { h := sha512.Sum512(b); return h[:] }, base64.StdEncoding.EncodeToString)

	uuid = stringFunc(func(...string) (cty.Value, error) {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails: it ends the process instead
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		return cty.StringVal(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])), nil
	}, cty.String)
	timestamp = stringFunc(func(...string) (cty.Value, error) {
		return cty.StringVal(time.Now().UTC().Format(time.RFC3339)), nil
	}, cty.String)

	// replace takes its second argument as a regular expression when it stands between slashes, as Terraform's does.
	replace = stringFunc(func(s ...string) (cty.Value, error) {
		if pattern, ok := slashed(s[1]); ok {
			re, err := regexp.Compile(pattern)
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(1, "the pattern is not a regular expression: %s", regexReason(err))
			}
			return cty.StringVal(re.ReplaceAllString(s[0], s[2])), nil
		}
		return cty.StringVal(strings.ReplaceAll(s[0], s[1], s[2])), nil
	}, cty.String, "string", "substring", "replacement")
)

func hashFunc(sum func([]byte) []byte, encode func([]byte) string) function.Function {
	return stringFunc(func(s ...string) (cty.Value, error) { return cty.StringVal(encode(sum([]byte(s[0])))), nil }, cty.String, "string")
}

// text refuses bytes that are not text, which cty would silently alter.
func text(s string) (cty.Value, error) {
	if !utf8.ValidString(s) {
		return cty.NilVal, errors.New("the result is not UTF-8 text, and a run file holds only text")
	}
	return cty.StringVal(s), nil
}

// slashed is the pattern in a string such as "/a+/".
func slashed(s string) (string, bool) {
	if len(s) > 1 && s[0] == '/' && s[len(s)-1] == '/' {
		return s[1 : len(s)-1], true
	}
	return "", false
}

func regexReason(err error) string { return strings.TrimPrefix(err.Error(), "error parsing regexp: ") }
