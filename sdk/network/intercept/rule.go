package intercept

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/hutch-run/hutch/sdk"
)

// requestRule is a checked [sdk.SecretRule].
type requestRule struct {
	methods []string // empty: any
	paths   []*regexp.Regexp
}

// star is what * in a path stands for: any characters, besides encoded ones that some hosts read as a separator, as the
// end, or as the beginning of another encoding: / \ % and control characters.
const star = `(?:[^%]|%2[0-46-9A-E]|%5[0-9ABD-F]|%[346789A-F][0-9A-F])*`

func newRequestRule(r sdk.SecretRule) (requestRule, error) {
	out := requestRule{methods: r.Methods}
	for _, m := range r.Methods {
		if !httpguts.ValidHeaderFieldName(m) || m != strings.ToUpper(m) {
			return out, fmt.Errorf("rule: invalid method %q: want an HTTP method in upper case, such as GET", m)
		}
	}
	for _, p := range r.Paths {
		if !strings.HasPrefix(p, "/") || strings.ContainsAny(p, "?#") {
			return out,
				fmt.Errorf("rule: invalid path %q: want a path that begins with /, without query, such as /repos/acme/*", p)
		}
		decoded, err := url.PathUnescape(p)
		if err != nil {
			return out, fmt.Errorf("rule: invalid path %q: %w", p, err)
		}
		plain, err := plainPath((&url.URL{Path: decoded, RawPath: p}).EscapedPath())
		if err != nil {
			return out, fmt.Errorf("rule: path %q can never match: %w", p, err)
		}
		parts := strings.Split(plain, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		re, err := regexp.Compile(`\A` + strings.Join(parts, star) + `\z`)
		if err != nil {
			return out, fmt.Errorf("rule: invalid path %q: %w", p, err)
		}
		out.paths = append(out.paths, re)
	}
	return out, nil
}

// admits reports whether a request with this method and escaped path may carry the secret.
func (r requestRule) admits(method, path string) bool {
	if len(r.methods) > 0 && !slices.Contains(r.methods, method) {
		return false
	}
	if len(r.paths) == 0 {
		return true
	}
	plain, err := plainPath(path)
	return err == nil && slices.ContainsFunc(r.paths, func(re *regexp.Regexp) bool { return re.MatchString(plain) })
}

// plainPath returns the form in which escaped paths are compared: what need not be encoded is decoded. It refuses paths
// that hosts read in different ways: with . or .. as a segment, parameters (;) after those included, with empty
// segments, backslashes, or text that is not UTF-8.
func plainPath(path string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c != '%' {
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(path) {
			return "", errors.New("it ends inside of an encoded character")
		}
		v, err := strconv.ParseUint(path[i+1:i+3], 16, 8)
		switch c := byte(v); {
		case err != nil:
			return "", errors.New("it has an invalid encoded character")
		case isAlnum(c) || strings.IndexByte("-._~!$&'()+,;=:@", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteString(strings.ToUpper(path[i : i+3]))
		}
		i += 2
	}
	plain := b.String()
	if decoded, err := url.PathUnescape(plain); err != nil || !utf8.ValidString(decoded) {
		return "", errors.New("it is not UTF-8")
	}
	segments := strings.Split(plain, "/")
	for i, s := range segments {
		name, _, _ := strings.Cut(s, ";")
		switch {
		case name == "." || name == "..":
			return "", errors.New("it has . or .. as a segment")
		case s == "" && i > 0 && i < len(segments)-1 || name == "" && s != "":
			return "", errors.New("it has an empty segment")
		case strings.Contains(s, `\`):
			return "", errors.New("it has a backslash")
		}
	}
	return plain, nil
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
