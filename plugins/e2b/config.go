package main

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/sdk"
)

// Config is the backend "e2b" block of a run file.
type Config struct {
	APIKey     string        `hutch:"api_key,sensitive" doc:"Key of the service. By default E2B_API_KEY of hutch's environment, which is also what later commands on a persistent sandbox use: the key is never stored."`
	Template   string        `hutch:"template" default:"base" doc:"Template that machines are made from: an id, an alias, team/alias or alias:tag. It needs a POSIX shell with the usual tools, GNU tar, gzip and GNU find."`
	Domain     string        `hutch:"domain" doc:"Domain of the service. By default E2B_DOMAIN, else e2b.app."`
	APIURL     string        `hutch:"api_url" doc:"Address of the control plane. By default E2B_API_URL, else https://api.DOMAIN. Plain http is taken for this machine's own addresses only."`
	SandboxURL string        `hutch:"sandbox_url" doc:"Address by which all machines are reached. By default E2B_SANDBOX_URL, else the one of the domain. Plain http is taken for this machine's own addresses only."`
	Timeout    time.Duration `hutch:"timeout" default:"5m" doc:"How long the service keeps a machine of which it hears nothing, from 30s to 24h. While hutch works in it that is extended again and again; afterwards a persistent sandbox is paused, with all its files, and any other one is gone. The service has a greatest life of its own."`
	User       string        `hutch:"user" default:"user" doc:"User of commands, by name, as the template has it. Workspace and output belong to it."`
	GitIgnore  bool          `hutch:"gitignore" default:"true" doc:"Whether what the project's .gitignore files name is left behind. What .hutchignore files name always is."`
	VCPUs      float64       `hutch:"vcpus" default:"2" doc:"Processors that the template's machines have. A run's limit cpus is held by the template when it is not below this, and when the service then says so too."`
	Memory     sdk.Bytes     `hutch:"memory" default:"512MiB" doc:"Memory that the template's machines have, for the limit memory as vcpus is for cpus."`
	Disk       sdk.Bytes     `hutch:"disk" doc:"Disk that the template's machines have, for the limit disk as vcpus is for cpus. Without it a limit of disk is refused."`
}

const (
	defaultDomain = "e2b.app"
	minTimeout    = 30 * time.Second
	maxTimeout    = 24 * time.Hour
)

// The variables that E2B's own SDKs read.
const (
	envKey        = "E2B_API_KEY"
	envDomain     = "E2B_DOMAIN"
	envAPIURL     = "E2B_API_URL"
	envSandboxURL = "E2B_SANDBOX_URL"
)

var environment = []string{envKey, envDomain, envAPIURL, envSandboxURL}

// sharedHosts are the domains whose machines are all reached by one host, sandbox.DOMAIN, and chosen by a header.
var sharedHosts = []string{"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"}

// Validate implements [sdk.Validator].
func (c *Config) Validate() (ds []sdk.Diagnostic) {
	bad := func(path, summary, detail string) {
		ds = append(ds, sdk.Diagnostic{Severity: sdk.SeverityError, Path: path, Summary: summary, Detail: detail})
	}
	quoted := func(s string) string { return "it is " + strconv.Quote(s) }
	if !isTemplate(c.Template) {
		bad("template", "this is no name of a template", quoted(c.Template))
	}
	if c.Domain != "" && !control.IsDomain(c.Domain) {
		bad("domain", "this is no name of a domain", quoted(c.Domain))
	}
	for path, address := range map[string]string{"api_url": c.APIURL, "sandbox_url": c.SandboxURL} {
		if err := checkURL(address); address != "" && err != nil {
			bad(path, err.Error(), "")
		}
	}
	if c.Timeout < minTimeout || c.Timeout > maxTimeout {
		bad("timeout", fmt.Sprintf("the timeout must be from %s to %s", minTimeout, maxTimeout), "it is "+c.Timeout.String())
	}
	if !isUser(c.User) {
		bad("user", "this is no name of a user", quoted(c.User))
	}
	if c.VCPUs < 0 {
		bad("vcpus", "a machine has some processors", "")
	}
	if !isKey(c.APIKey) {
		bad("api_key", "the key holds characters that no key has", "")
	}
	return ds
}

// isKey refuses what no header can hold.
func isKey(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isTemplate(s string) bool {
	return len(s) <= 256 && regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`).MatchString(s)
}

func isUser(s string) bool {
	return len(s) <= 64 && regexp.MustCompile(`^[a-z_][a-z0-9_.-]*$`).MatchString(s)
}

// checkURL refuses what the key must not be sent to.
func checkURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("this is no address such as https://api.example.com")
	}
	switch host := u.Hostname(); {
	case u.Scheme == "https":
		return nil
	case u.Scheme != "http":
		return fmt.Errorf("the address must begin with https://")
	case host == "localhost", net.ParseIP(host).IsLoopback():
		return nil
	}
	return fmt.Errorf("the key would travel in the clear: plain http is for this machine's own addresses only")
}

// service is where the machines are, and by which key. It is what a sandbox's configuration and the environment
// together say.
type service struct {
	key        string
	domain     string
	apiURL     string
	sandboxURL string // "" for the one of the domain
}

// service of c, whose fields count more than the environment. The environment's key goes to the environment's addresses
// only: a run file must not be able to send it elsewhere.
func (c *Config) service() (service, error) {
	if c.APIKey == "" {
		for _, f := range []struct{ attribute, given, own string }{
			{"api_url", c.APIURL, os.Getenv(envAPIURL)}, {"sandbox_url", c.SandboxURL, os.Getenv(envSandboxURL)},
			{"domain", c.Domain, cmp.Or(os.Getenv(envDomain), defaultDomain)},
		} {
			if f.given != "" && f.given != f.own {
				return service{}, &sdk.Error{Reason: sdk.ReasonConfig, Path: f.attribute,
					Summary: "the key of the environment is not sent to an address that a run file names",
					Fix: "set api_key in the backend block as well, or give the address in the environment (" + envDomain + ", " +
						envAPIURL + ", " + envSandboxURL + ")"}
			}
		}
	}
	s := service{
		key:        cmp.Or(c.APIKey, os.Getenv(envKey)),
		domain:     cmp.Or(c.Domain, os.Getenv(envDomain), defaultDomain),
		apiURL:     cmp.Or(c.APIURL, os.Getenv(envAPIURL)),
		sandboxURL: cmp.Or(c.SandboxURL, os.Getenv(envSandboxURL)),
	}
	if !isKey(s.key) {
		return s, sdk.Errorf(sdk.ReasonConfig,
			"the key in %s holds characters that no key has, such as a blank or a line break", envKey).
			WithFix("set it to the key alone; keys are at https://e2b.dev/dashboard")
	}
	if !control.IsDomain(s.domain) {
		return s, sdk.Errorf(sdk.ReasonConfig, "invalid domain name %q in %s", s.domain, envDomain)
	}
	if s.apiURL == "" {
		s.apiURL = "https://api." + s.domain
	}
	for name, address := range map[string]string{envAPIURL: s.apiURL, envSandboxURL: s.sandboxURL} {
		if err := checkURL(address); address != "" && err != nil {
			return s, sdk.Errorf(sdk.ReasonConfig, "the variable %s: %w", name, err)
		}
	}
	return s, nil
}

// errNoKey is the error of every call without a key.
func errNoKey() error {
	return sdk.Errorf(sdk.ReasonDenied, "there is no API key for E2B").WithFix("set %s", keyPlace)
}

// daemonURL is where the daemon of a machine is reached. The machine's domain is the service's word and may be empty.
func (s service) daemonURL(id, domain string) string {
	if s.sandboxURL != "" {
		return s.sandboxURL
	}
	domain = cmp.Or(domain, s.domain)
	if slices.Contains(sharedHosts, domain) {
		return "https://sandbox." + domain
	}
	return fmt.Sprintf("https://%d-%s.%s", daemonPort, id, domain)
}

func configOf(spec *sdk.Spec) *Config { return sdk.ConfigOf[Config](spec) }
