package deps

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk/network"
)

// Lock is a lock file of a language, whose packages are installed at its versions, each with the digest that it names:
// requirements.txt with --hash, or package-lock.json.
type Lock struct {
	// Files are what the installer reads, by name.
	Files map[string]string
	// Packages are what it installs: NAME==VERSION, or NAME@VERSION.
	Packages []string
	// URLs are where packages come from that the registry does not have, on the internet.
	URLs []string
}

// ParseLock reads a lock file of lang. It refuses one that the installer would not enforce: with a package without a
// digest, or with options of the installer.
func ParseLock(lang, text string) (*Lock, error) {
	switch lang {
	case "python":
		return requirements(text)
	case "javascript":
		return packageLock(text)
	}
	return nil, fmt.Errorf("hutch installs from no lock file of %s", lang)
}

var (
	hashOption = regexp.MustCompile(`\s--hash[= ](sha256|sha384|sha512):[0-9a-f]+`)
	pinned     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]*\])?\s*===?\s*[A-Za-z0-9.!+_-]+$`)
)

// requirements reads what pip-compile --generate-hashes and uv pip compile --generate-hashes write.
func requirements(text string) (*Lock, error) {
	l := &Lock{Files: map[string]string{"requirements.txt": text}}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if i := strings.Index(" "+line, " #"); i >= 0 {
			line = line[:i]
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		bare := strings.TrimSpace(hashOption.ReplaceAllString(line, ""))
		name, _, _ := strings.Cut(bare, ";")
		name = strings.TrimSpace(name)
		switch {
		case strings.HasPrefix(bare, "-"):
			return nil, fmt.Errorf("%.100q is an option of the installer: want packages only", bare)
		case !pinned.MatchString(name):
			return nil, fmt.Errorf("%.100q does not pin a version: want NAME==VERSION --hash=sha256:DIGEST", bare)
		case bare == line:
			return nil,
				fmt.Errorf("%.100q has no --hash: write the file with pip-compile --generate-hashes or uv pip compile "+
					"--generate-hashes", bare)
		}
		l.Packages = append(l.Packages, name)
	}
	if len(l.Packages) == 0 {
		return nil, errors.New("it has no packages")
	}
	return l, nil
}

// packageLock reads what npm writes, from version 7 on. The package.json that npm ci wants is made of what the lock
// file says of the project.
func packageLock(text string) (*Lock, error) {
	var lock struct {
		Packages map[string]json.RawMessage `json:"packages"`
	}
	if err := json.Unmarshal([]byte(text), &lock); err != nil {
		return nil, fmt.Errorf("it is not a package-lock.json: %w", err)
	}
	project, ok := lock.Packages[""]
	if !ok {
		return nil,
			errors.New("it is not a package-lock.json of npm 7 or newer: write it again with npm install --package-lock-only")
	}
	l := &Lock{Files: map[string]string{"package-lock.json": text, "package.json": string(project)}}
	for at, raw := range lock.Packages {
		if at == "" {
			continue
		}
		var p struct {
			Name, Version, Resolved, Integrity string
			Link, InBundle                     bool
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, fmt.Errorf("%.100q: %w", at, err)
		}
		i := strings.LastIndex(at, "node_modules/")
		u, err := url.Parse(p.Resolved)
		switch {
		case i < 0 || p.Link:
			return nil, fmt.Errorf("%.100q is a directory of the project, which is not there when packages are installed", at)
		case p.InBundle: // part of another package's archive
		case p.Integrity == "":
			return nil, fmt.Errorf("%.100q has no integrity: npm could not notice that it is another package", at)
		case err != nil || u.User != nil:
			return nil, fmt.Errorf("%.100q is at a URL that is invalid or holds credentials", at)
		}
		if p.Name == "" {
			p.Name = at[i+len("node_modules/"):]
		}
		l.Packages = append(l.Packages, p.Name+"@"+p.Version)
		if host := u.Hostname(); mayName(host) && !slices.Contains(registries["javascript"], host) {
			l.URLs = append(l.URLs, p.Resolved)
		}
	}
	slices.Sort(l.Packages)
	slices.Sort(l.URLs)
	l.Packages = slices.Compact(l.Packages)
	return l, nil
}

// mayName reports whether a lock file, which comes with a project, opens a host to its installation: neither this
// machine nor a private network.
func mayName(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return network.Public(addr)
	}
	return host != "" && network.Canonical(host) != network.Host
}
