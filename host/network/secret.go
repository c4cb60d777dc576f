package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
	rules "github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/network/intercept"
)

// Secret is a value on this machine that commands use without seeing it. It holds where the value is, never the value.
type Secret struct {
	Name  string           `json:"name"` // also of the variable that has the placeholder
	From  Source           `json:"from"`
	Hosts []string         `json:"hosts"`
	Rules []sdk.SecretRule `json:"rules,omitempty"` // empty: any request
}

// Source is where the value of a secret is: exactly one of Env, File and Command.
type Source struct {
	Env     string         `json:"env,omitempty"`     // a variable of hutch's environment
	File    string         `json:"file,omitempty"`    // absolute; one line break at its end is no part of the value
	Command []string       `json:"command,omitempty"` // run on this machine; its output is as that of a file
	TTL     units.Duration `json:"ttl,omitzero"`      // how long one process of hutch uses the output of Command again
}

// String says where the value is.
func (s Source) String() string {
	switch {
	case s.Env != "":
		return "variable " + s.Env
	case s.File != "":
		return "file " + s.File
	}
	if s.TTL != 0 {
		return fmt.Sprintf("command %q, kept for %s", s.Command, s.TTL)
	}
	return fmt.Sprintf("command %q", s.Command)
}

// String says what the secret is for, in one line.
func (s Secret) String() string {
	text := s.Name + " from " + s.From.String() + ", for " + strings.Join(s.Hosts, ", ")
	for i, r := range s.Rules {
		methods, paths := "any method", "any path"
		if len(r.Methods) > 0 {
			methods = strings.Join(r.Methods, ", ")
		}
		if len(r.Paths) > 0 {
			paths = strings.Join(r.Paths, ", ")
		}
		text += map[bool]string{true: ": ", false: "; "}[i == 0] + methods + " " + paths
	}
	return text
}

// isVariable reports whether name can be that of a variable: up to 64 letters, digits and underscores, no digit first.
// It is not a regular expression, which every start of hutch would compile.
func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

// Check says what is wrong with the secret in itself.
func (s Secret) Check() error {
	if !isVariable(s.Name) {
		return fmt.Errorf("invalid name %q: want that of a variable, such as GITHUB_TOKEN", s.Name)
	}
	return intercept.Check(sdk.Secret{Name: s.Name, Hosts: s.Hosts, Rules: s.Rules})
}

const commandTimeout = time.Minute

// Read returns the value as it is now. environ is the environment of the user, as NAME=VALUE. The error does not hold
// the value.
func (s Source) Read(ctx context.Context, environ []string) (string, error) {
	var value, fix string
	var err error
	switch {
	case s.Env != "":
		fix = "set " + s.Env + " where hutch runs"
		i := slices.IndexFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, s.Env+"=") })
		if i < 0 {
			return "", &sdk.Error{Reason: sdk.ReasonConfig, Summary: "the variable " + s.Env + " is not set", Fix: fix}
		}
		value = environ[i][len(s.Env)+1:]
	case s.File != "":
		fix = "write the value into the file"
		value, err = readFile(s.File)
	default:
		value, err = commands.output(ctx, s, environ)
	}
	if err == nil {
		value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
		err = intercept.CheckValue(value)
	}
	if err != nil {
		return "", &sdk.Error{Reason: sdk.ReasonConfig, Summary: s.String() + ": " + err.Error(), Fix: fix, Err: err}
	}
	return value, nil
}

func readFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		if e := (*os.PathError)(nil); errors.As(err, &e) {
			err = e.Err // the path is said already
		}
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, intercept.MaxValue+3))
	return string(b), err
}

// commands keeps the output of commands while their TTL lasts.
var commands = cache{kept: map[string]kept{}}

type cache struct {
	mu   sync.Mutex
	kept map[string]kept
}

type kept struct {
	value string
	until time.Time
}

func (c *cache) output(ctx context.Context, s Source, environ []string) (string, error) {
	key := strings.Join(s.Command, "\x00")
	c.mu.Lock()
	k := c.kept[key]
	c.mu.Unlock()
	if time.Now().Before(k.until) {
		return k.value, nil
	}
	value, err := output(ctx, s.Command, environ)
	if err == nil && s.TTL > 0 {
		c.mu.Lock()
		c.kept[key] = kept{value, time.Now().Add(time.Duration(s.TTL))}
		c.mu.Unlock()
	}
	return value, err
}

// output runs a command in a process group of its own, which ends with it.
func output(ctx context.Context, argv, environ []string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTimeout, fmt.Errorf("it did not end within %s", commandTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	stdout, stderr := keep.Head{Max: intercept.MaxValue + 3}, keep.Head{Max: 1 << 10}
	cmd.Env, cmd.Stdout, cmd.Stderr = environ, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		if line != "" {
			line = ": " + line
		}
		return "", fmt.Errorf("%w%s", err, line)
	}
	return stdout.String(), nil
}

// ParseSecret reads a value of --secret: NAME=env@HOST, NAME=env:VARIABLE@HOST or NAME=file:PATH@HOST, where HOST may
// be several with commas between.
func ParseSecret(text string) (Secret, error) {
	const want = "want NAME=env@HOST, NAME=env:VARIABLE@HOST or NAME=file:PATH@HOST"
	name, rest, _ := strings.Cut(text, "=")
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return Secret{}, errors.New("no host: " + want) // which does not repeat what may be a value
	}
	s := Secret{Name: name, Hosts: strings.Split(rest[at+1:], ",")}
	switch kind, arg, _ := strings.Cut(rest[:at], ":"); {
	case kind == "env" && arg == "":
		s.From.Env = name
	case kind == "env":
		s.From.Env = arg
	case kind == "file" && arg != "":
		path, err := filepath.Abs(arg)
		if err != nil {
			return Secret{}, err
		}
		s.From.File = path
	default:
		return Secret{}, errors.New("a secret is named by where it is, not given: " + want)
	}
	return s, s.Check()
}

// Misfit says why a secret does not fit the rest of a run, by the path of what is to be changed; "" when it does. env
// are the variables that the run sets.
func (n Network) Misfit(s Secret, env map[string]string) (path, summary, fix string) {
	at := fmt.Sprintf("network.secret[%q]", s.Name)
	if _, set := env[s.Name]; set {
		return at, fmt.Sprintf("secret %s: env sets %s too, which is to have the placeholder", s.Name, s.Name),
			"take " + s.Name + " out of env"
	}
	if n.OrNone().Mode == sdk.NetworkNone {
		return "network.mode", fmt.Sprintf("secret %s needs a network, but network.mode is \"none\"", s.Name),
			"say which destinations are allowed, instead of the mode"
	}
	all, err := rules.Parse(n.Mode, n.Rules())
	if err != nil {
		return "", "", "" // said where the rules are read
	}
	for _, host := range s.Hosts {
		h, err := rules.ParseRule(host)
		if err != nil {
			continue
		}
		name := h.Name()
		if strings.HasPrefix(host, "*.") {
			name = "any." + name
		}
		switch v := all.Name(name, cmp.Or(h.Port(), 443)); {
		case v.Allowed:
		case v.Rule != "":
			return at + ".hosts", fmt.Sprintf("secret %s: its host %s is denied by %q in network.deny", s.Name, host, v.Rule), ""
		default:
			return at + ".hosts", fmt.Sprintf("secret %s: its host %s is not in network.allow", s.Name, host),
				fmt.Sprintf("add %q to allow", host)
		}
	}
	return "", "", ""
}

// WithSecrets adds the values of --secret to what other flags say. The hosts that they name are allowed by that.
func (n Network) WithSecrets(flags []string) (Network, error) {
	if len(flags) > 0 && n.Mode == sdk.NetworkNone {
		return n,
			fmt.Errorf("--network %s and --secret exclude each other: leave out --network, for the hosts of --secret alone",
				n.Mode)
	}
	for _, text := range flags {
		s, err := ParseSecret(text)
		if err != nil {
			return n, fmt.Errorf("--secret: %w", err)
		}
		more := Network{Mode: sdk.NetworkFiltered, Secrets: []Secret{s}}
		for _, host := range s.Hosts {
			if rule, err := rules.ParseRule(host); err == nil && rule.Port() == 0 {
				host += ":443"
			}
			more.Allow = append(more.Allow, host)
		}
		n.Mode = cmp.Or(n.Mode, sdk.NetworkFiltered)
		n = n.With(more)
	}
	return n, nil
}
