package deps

import (
	"cmp"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
)

// passed are the variables of the user's environment that installers may see: where packages come from and how to get
// there. Their names are compared without regard to case, because npm and proxies are used in both.
var passed = map[string][]string{
	"": {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"},
	"python": {
		"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_NO_INDEX", "PIP_PRE", "PIP_ONLY_BINARY",
		"PIP_NO_BINARY", "PIP_PREFER_BINARY",
		"PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_CONSTRAINT",
		"UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INSECURE_HOST", "UV_NO_INDEX",
		"UV_HTTP_TIMEOUT", "UV_NATIVE_TLS",
	},
	"javascript": {
		"NPM_CONFIG_REGISTRY", "NPM_CONFIG_STRICT_SSL", "NPM_CONFIG_PROXY", "NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_NOPROXY",
		"NPM_CONFIG_FETCH_RETRIES", "NPM_CONFIG_FETCH_RETRY_MINTIMEOUT", "NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT",
		"NPM_CONFIG_FETCH_TIMEOUT",
	},
}

// bundles are the variables that name a file of certificates. The file is handed over under another name.
var bundles = map[string][]string{
	"":           {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"},
	"python":     {"PIP_CERT"},
	"javascript": {"NODE_EXTRA_CA_CERTS", "NPM_CONFIG_CAFILE"},
}

// trusted are the variables that installers are always given: which authorities they trust. Each takes the user's own
// value, else that of the first other one that is set, else the machine's bundle: an installer that brings a bundle of
// its own, as npm does, would not trust an authority that the rest of the machine does.
var trusted = map[string][]string{
	"python":     {"PIP_CERT", "SSL_CERT_FILE"},
	"javascript": {"NODE_EXTRA_CA_CERTS"},
}

// instead are the variables that are looked at for one of trusted which is not set.
var instead = []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS"}

// machineBundles is where systems keep the authorities that they trust: Debian, Fedora, SUSE, Alpine.
var machineBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// forUV are the variables that give uv the user's settings for pip, unless uv has its own.
var forUV = [][2]string{
	{"PIP_INDEX_URL", "UV_DEFAULT_INDEX"}, {"PIP_EXTRA_INDEX_URL", "UV_INDEX"}, {"PIP_TRUSTED_HOST", "UV_INSECURE_HOST"},
	{"PIP_NO_INDEX", "UV_NO_INDEX"},
}

// Settings are what an installer gets from the user.
type Settings struct {
	Env map[string]string
	// Bundles maps variables to the files of certificates on the host that they name.
	Bundles map[string]string
	// Secrets are credentials in Env, to be kept out of everything that is printed or stored.
	Secrets []string
}

// SettingsFrom chooses from the user's environment (NAME=VALUE) what the installers of a language may see. npm's
// settings for single registries, such as credentials in npm_config_//host/:_authToken, are among it.
func SettingsFrom(lang string, environ []string) Settings {
	s := Settings{Env: map[string]string{}, Bundles: map[string]string{}}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if name == "" || value == "" {
			continue
		}
		upper := strings.ToUpper(name)
		registry := lang == "javascript" && strings.HasPrefix(upper, "NPM_CONFIG_//")
		switch {
		case slices.Contains(bundles[""], upper) || slices.Contains(bundles[lang], upper):
			s.Bundles[name] = value
		case registry, slices.Contains(passed[""], upper), slices.Contains(passed[lang], upper):
			s.Env[name] = value
			if registry {
				s.Secrets = append(s.Secrets, value)
			}
			s.Secrets = append(s.Secrets, credentials(value)...)
		}
	}
	for _, m := range forUV {
		if v := s.Env[m[0]]; v != "" && s.Env[m[1]] == "" && lang == "python" {
			s.Env[m[1]] = v
		}
	}
	s.trust(lang, environ)
	slices.Sort(s.Secrets)
	s.Secrets = slices.Compact(s.Secrets)
	return s
}

// trust completes Bundles with what the user did not say.
func (s Settings) trust(lang string, environ []string) {
	from := cmp.Or(Bundles(environ))
	for _, name := range trusted[lang] {
		if s.Bundles[name] == "" && from != "" {
			s.Bundles[name] = from
		}
	}
}

// Bundles returns the files of certificates of the authorities that the user's environment and this machine trust; ""
// for none.
func Bundles(environ []string) (users, machines string) {
	said := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		said[name] = value
	}
	for _, name := range instead {
		if users = said[name]; users != "" {
			break
		}
	}
	for _, name := range machineBundles {
		if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
			return users, name
		}
	}
	return users, ""
}

// Fix says what may help when an installer failed with this output. The authority of a registry's certificate is named
// when that was not trusted, because no installer says what to do about it.
func Fix(lang, output string) string {
	output = strings.ToLower(output)
	if strings.Contains(output, "no such option: --uploaded-prior-to") {
		return "min_age needs pip 26.0 or newer, or uv"
	}
	for _, sign := range []string{"certificate", "_cert", "unable_to_verify", "self-signed", "sslerror"} {
		if strings.Contains(output, sign) && len(trusted[lang]) > 0 {
			return "the registry's certificate is not trusted here: let " + trusted[lang][0] +
				" name a file with the certificate of the authority that signed it, or add that to the machine's " +
				"(update-ca-certificates)"
		}
	}
	return "check the names and versions, and that the package registry can be reached"
}

// Public is Env without credentials: what may be part of a key or of a record.
func (s Settings) Public() map[string]string {
	m := map[string]string{}
	for k, v := range s.Env {
		if strings.HasPrefix(strings.ToUpper(k), "NPM_CONFIG_//") {
			continue
		}
		m[k] = s.Redact(v)
	}
	return m
}

// Redact takes the credentials out of text, such as what an installer printed.
func (s Settings) Redact(text string) string {
	secrets := slices.Clone(s.Secrets)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, x := range secrets {
		text = strings.ReplaceAll(text, x, "(sensitive)")
	}
	return text
}

// credentials finds the users and passwords in a list of URLs. They may be printed encoded or decoded.
func credentials(value string) []string {
	var l []string
	for _, f := range strings.Fields(value) {
		_, rest, ok := strings.Cut(f, "//") // the scheme may be left out
		if !ok {
			continue
		}
		authority, _, _ := strings.Cut(rest, "/")
		i := strings.LastIndexByte(authority, '@')
		if i < 0 {
			continue
		}
		info := authority[:i]
		l = append(l, info)
		if u, err := url.Parse(f); err == nil && u.User != nil {
			if p, ok := u.User.Password(); ok && len(p) >= 4 {
				l = append(l, p)
			} else if name := u.User.Username(); !ok && len(name) >= 4 {
				l = append(l, name) // a token alone
			}
		}
		if _, p, ok := strings.Cut(info, ":"); ok && len(p) >= 4 {
			l = append(l, p)
		}
	}
	return l
}

// BundleName is the name under which the file of a bundle variable is handed over.
func BundleName(variable string) string {
	return "ca-" + strings.ToLower(path.Base(variable)) + ".pem"
}
