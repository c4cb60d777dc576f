package backend

import (
	"slices"
	"strings"
)

// passed are the variables of the host's environment that every plugin sees. It
// sees no others but those it declares.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
	"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"GOCOVERDIR", // so that tests see what a plugin covers
}

// passedPrefixes are the beginnings of further ones.
var passedPrefixes = []string{"LC_", "XDG_"}

// environ makes a map of "NAME=value" entries; the last of a name counts.
func environ(list []string) map[string]string {
	m := make(map[string]string, len(list))
	for _, kv := range list {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			m[name] = value
		}
	}
	return m
}

// pluginEnv returns the environment of a plugin, sorted. HUTCH_ variables and
// go-plugin's are never passed on, even if declared: they are how hosts speak to plugins.
func pluginEnv(host map[string]string, declared []string) []string {
	var env []string
	for name, value := range host {
		ok := slices.Contains(passed, name) || slices.ContainsFunc(passedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if ok || slices.Contains(declared, name) && !reserved(name) {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	return env
}

func reserved(name string) bool {
	return strings.HasPrefix(name, "HUTCH_") || strings.HasPrefix(name, "PLUGIN_") || strings.HasPrefix(name, "LD_")
}

// missing reports whether declared names a variable that the host has and base would withhold.
func missing(host map[string]string, declared []string) bool {
	return len(pluginEnv(host, declared)) > len(pluginEnv(host, nil))
}
