package preset

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
	rules "github.com/hutch-run/hutch/sdk/network"
)

// HomeDir is the agent's home directory, as its sandbox sees it.
const HomeDir = "/home/agent"

// Options say where an agent works.
type Options struct {
	Project string // absolute host directory; the sandbox has a private layer over it
	Home    string // absolute host directory that is there; the agent's home directory
	Backend string // name
	Limits  runfile.Limits
	Network network.Network     // on top of the preset's, see [network.Network.With]
	Environ func(string) string // variables of this machine, as [os.Getenv]
}

// Definition makes the definition of the sandbox in which p works, and returns the keys that are not set here, by the
// variable that the agent reads.
func (p *Preset) Definition(prog *Program, o Options) (d *runfile.Definition, unset []string, err error) {
	env := map[string]string{"HOME": HomeDir}
	maps.Copy(env, p.Env)
	if prog.Bin != "" {
		env["PATH"] = prog.Bin + ":/usr/local/bin:/usr/bin:/bin"
	}
	n := network.Network{Mode: sdk.NetworkFiltered, Allow: append([]string{}, p.Hosts...)}
	var gateways []string
	for _, k := range p.Keys {
		hosts := k.Hosts
		if base := o.Environ(k.BaseURL); k.BaseURL != "" && base != "" {
			u, host, err := reach(base)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", k.BaseURL, err)
			}
			hosts, env[k.BaseURL] = []string{host}, u
			if !slices.Contains(gateways, host) {
				gateways = append(gateways, host)
			}
		}
		source := k.source(o.Environ)
		if source == "" {
			unset = append(unset, k.Name)
			continue
		}
		n.Secrets = append(n.Secrets, network.Secret{Name: k.Name, From: network.Source{Env: source}, Hosts: hosts})
	}
	n.Allow = append(n.Allow, gateways...)
	if n = n.With(o.Network); n.Mode == sdk.NetworkFull { // which alone does not reach this machine
		n.Allow = append(n.Allow, gateways...)
	}
	d, err = run.Direct{
		Backend: o.Backend, Command: []string{prog.Path}, Workspace: o.Project, Network: n, Limits: o.Limits, Name: p.Name,
	}.Definition()
	if err != nil {
		return nil, nil, err
	}
	d.Env, d.Command = env, nil
	if prog.installed {
		d.Language, d.Dependencies = p.Language, p.Dependencies
	}
	d.Workspace.Omit = p.Omit
	if st, err := os.Lstat(filepath.Join(o.Project, ".git")); err == nil && st.IsDir() { // its commits are pulled
		d.Workspace.Omit = append([]string{".git"}, p.Omit...)
	}
	d.Mounts = []runfile.Mount{{Target: HomeDir, Source: o.Home, Mode: runfile.MountWritable}}
	for _, dir := range prog.Dirs {
		d.Mounts = append(d.Mounts, runfile.Mount{Target: dir, Source: dir, Mode: runfile.MountReadOnly})
	}
	return d, unset, nil
}

// Installed is the agent's program as the dependencies of its sandbox; nil when the preset has none.
func (p *Preset) Installed() *Program {
	l, ok := language.ByName(p.Language)
	if !ok || len(p.Dependencies) == 0 {
		return nil
	}
	return &Program{Path: path.Join(l.Deps.Target, l.Deps.Bin, p.Program), installed: true}
}

// source is the variable of this machine that has the key, or "".
func (k Key) source(environ func(string) string) string {
	i := slices.IndexFunc(k.From, func(name string) bool { return environ(name) != "" })
	if i < 0 {
		return ""
	}
	return k.From[i]
}

// reach returns a URL of this machine as a sandbox has to write it, and the rule for its host. This machine's loopback
// is [rules.Host] there.
func reach(base string) (inside, rule string, err error) {
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "" {
		return "", "", errors.New("not a URL with a host, such as https://gateway.example.com")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if port == "" {
		return "", "", fmt.Errorf("unknown scheme %q: want http or https", u.Scheme)
	}
	host := u.Hostname()
	if addr, err := netip.ParseAddr(host); host == "localhost" || err == nil && addr.IsLoopback() {
		host = rules.Host
		u.Host = net.JoinHostPort(host, port)
	}
	return u.String(), host + ":" + port, nil
}

// Fill writes the files of the preset that the home directory dir does not have.
func (p *Preset) Fill(dir string) error {
	root, err := os.OpenRoot(dir) // the agent may have put links there
	if err != nil {
		return err
	}
	defer root.Close()
	for _, h := range p.Home {
		if _, err := root.Lstat(h.Path); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if parent := filepath.Dir(h.Path); parent != "." {
			if err := root.MkdirAll(parent, 0o700); err != nil {
				return err
			}
		}
		if err := root.WriteFile(h.Path, []byte(h.Content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Command is what starts the agent: interactive, or unattended with a prompt; again goes on with its last session.
// environ is as in [Options].
func (p *Preset) Command(prog *Program, prompt string, again bool, more []string,
	environ func(string) string) ([]string, error) {
	argv := []string{prog.Path}
	switch {
	case prompt != "" && len(p.Prompt) == 0:
		return nil, fmt.Errorf("%s takes no prompt on its command line", p.Description)
	case again && len(p.Continue) == 0:
		return nil, fmt.Errorf("%s cannot go on with a session", p.Description)
	}
	if prompt != "" && !strings.HasPrefix(p.Prompt[0], "-") { // a command of the program
		argv = append(argv, p.Prompt...)
	}
	if again {
		argv = append(argv, p.Continue...)
	}
	argv = append(argv, p.Args...)
	for _, k := range p.Keys {
		if k.source(environ) != "" {
			argv = append(argv, k.Args...)
		}
		if base := environ(k.BaseURL); len(k.BaseURLArgs) > 0 && base != "" {
			inside, _, err := reach(base)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.BaseURL, err)
			}
			for _, a := range k.BaseURLArgs {
				argv = append(argv, strings.ReplaceAll(a, "{url}", inside))
			}
		}
	}
	argv = append(argv, more...)
	if prompt != "" {
		if strings.HasPrefix(p.Prompt[0], "-") {
			argv = append(argv, p.Prompt...)
		}
		argv = append(argv, prompt)
	}
	return argv, nil
}
