package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/install"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/host/session"
)

type backendInstallCmd struct {
	Source string `arg:"" name:"source[:version]" help:"Where its releases are, and which one: the newest without a version."`
	Name   string `placeholder:"NAME" help:"Name of the backend, where the source does not end in hutch-backend-NAME."`
}

// Help is the text below the synopsis.
func (*backendInstallCmd) Help() string {
	return `Installs one backend for all your runs that have no lock file which says otherwise; hutch init installs what
a project requires.

    hutch backend install registry.example.com/acme/hutch-backend-acme:1.2.0
    hutch backend install https://github.com/acme/hutch-backend-acme/releases/download/v{version}:1.2.0
    hutch backend install ./dist`
}

func (c *backendInstallCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	in, err := installer(s, u)
	if err != nil {
		return err
	}
	o, err := in.Install(ctx, c.Name, c.Source, s.Store().Paths().InstalledLock())
	if err != nil {
		return err
	}
	return u.line("%s", initialized(install.Initialized{Name: o.Lock.Name, Version: o.Lock.Version, Source: o.Lock.Source,
		Signed: o.Lock.SignedBy, Fetched: o.Fetched}))
}

type backendRemoveCmd struct {
	Name string `arg:"" help:"Name of the backend." complete:"backend"`
}

// Help is the text below the synopsis.
func (*backendRemoveCmd) Help() string {
	return `Takes back what hutch backend install and hutch init brought of a backend: all its versions. Projects that
have it locked need hutch init again. It is refused while a sandbox that lasts was made by one of them.`
}

func (c *backendRemoveCmd) Run(_ context.Context, u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	n, err := install.Remove(s, c.Name)
	if err != nil {
		return err
	}
	u.note("removed %s of backend %q", count(n, "version"), c.Name)
	return nil
}

type backendPackCmd struct {
	Programs []string `arg:"" name:"[os/arch=]program" help:"Programs hutch-backend-NAME, one for each platform; the platform is read from the program if possible." complete:"file"`
	Name     string   `placeholder:"NAME" help:"Name of the backend, where the program is not called hutch-backend-NAME."`
	Version  string   `name:"release" placeholder:"VERSION" help:"Version of the release; needed when none of the programs runs here, and refused when the one that does says another."`
	Extra    []string `placeholder:"[OS/ARCH=]FILE" help:"Put this file into every archive, or that of one platform, beside the program. Repeatable." complete:"file"`
	Dir      string   `short:"d" default:"dist" placeholder:"DIR" help:"Where to write the release (default dist)." complete:"dir"`
}

// Help is the text below the synopsis.
func (*backendPackCmd) Help() string {
	return `Writes a release of a backend: an archive for each platform, and a manifest with their hashes, which is what
is to be signed: minisign -Sm dist/hutch-backend-acme_1.2.0_manifest.json. The program for this machine is started and
asked for its name, its version and the protocol it speaks.

A release is given away by hutch backend publish, or by copying the files to a web server.

    hutch backend pack --extra LICENSE build/linux_amd64/hutch-backend-acme build/linux_arm64/hutch-backend-acme`
}

func (c *backendPackCmd) Run(ctx context.Context, u *ui) error {
	var builds []release.Build
	var native string
	name := c.Name
	for _, p := range c.Programs {
		b := release.Build{Binary: p}
		if platform, path, ok := strings.Cut(p, "="); ok && release.CheckPlatform(platform) == nil {
			b.Platform, b.Binary = platform, path
		} else {
			var err error
			if b.Platform, err = release.PlatformOf(p); err != nil {
				return err
			}
		}
		for _, e := range c.Extra {
			platform, path, ok := strings.Cut(e, "=")
			switch {
			case !ok || release.CheckPlatform(platform) != nil:
				b.Extra = append(b.Extra, e)
			case platform == b.Platform:
				b.Extra = append(b.Extra, path)
			}
		}
		if n, ok := strings.CutPrefix(filepath.Base(b.Binary), backend.Prefix); ok && name == "" {
			name = n
		}
		if b.Platform == backend.Platform {
			native = b.Binary
		}
		builds = append(builds, b)
	}
	if name == "" {
		return hint(errors.New("no program is called hutch-backend-NAME"), "--name says what the backend is called")
	}
	version := c.Version
	if native != "" {
		s, done, err := open(u)
		if err != nil {
			return err
		}
		defer done()
		facts, err := whatIs(ctx, s, native)
		switch {
		case err != nil:
			return err
		case facts.Name != name:
			return fmt.Errorf("%s says its name is %q, and the release is of %q", native, facts.Name, name)
		case version == "":
			version = facts.Version
		case version != facts.Version:
			return fmt.Errorf("%s says its version is %s, and not %s", native, facts.Version, version)
		}
	}
	if version == "" {
		return hint(errors.New("none of the programs runs here to be asked for its version"), "--release says it")
	}
	m, err := release.Pack(c.Dir, name, version, []int{session.Protocol}, builds)
	if err != nil {
		return err
	}
	for _, a := range m.Archives {
		if err := u.line("%s", filepath.Join(c.Dir, a.File)); err != nil {
			return err
		}
	}
	return u.line("%s", filepath.Join(c.Dir, release.ManifestName(name, version)))
}

// identity is what a program says about itself.
type identity struct{ Name, Version string }

// whatIs starts a program and asks what it is. That it starts shows that it speaks the protocol.
func whatIs(ctx context.Context, s *session.Session, path string) (identity, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return identity{}, err
	}
	b, err := s.Find(ctx, abs)
	if err != nil {
		return identity{}, err
	}
	return identity{b.Facts.Name, b.Facts.Version}, nil
}

type backendPublishCmd struct {
	Release string `arg:"" help:"The manifest of a release, or a directory: then every release in it." complete:"file"`
	To      string `arg:"" help:"Repository of a registry: registry.example.com/acme/hutch-backend-acme. {name} in it stands for the name of the backend."`
	Output  string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line."`
}

// Help is the text below the synopsis.
func (*backendPublishCmd) Help() string {
	return `Brings a release that hutch backend pack wrote into an OCI registry, with its signature when one lies beside
the manifest. The tag is the version; a version that is there is not replaced, because lock files hold its hashes. The
credentials are those of docker login.

    hutch backend publish dist registry.example.com/acme/hutch-backend-acme`
}

func (c *backendPublishCmd) Run(ctx context.Context, u *ui) error {
	manifests, err := install.Manifests(c.Release)
	if err != nil {
		return err
	}
	in := &install.Installer{Dir: os.TempDir()}
	for _, m := range manifests {
		name, _, _ := release.SplitManifestName(filepath.Base(m))
		p, err := in.Publish(ctx, m, strings.ReplaceAll(c.To, "{name}", name))
		if err != nil {
			return err
		}
		if c.Output == "json" {
			err = json.NewEncoder(u.out).Encode(p)
		} else {
			err = u.line("%s:%s@%s for %s", p.Source, p.Version, p.Digest, strings.Join(p.Platforms, ", "))
		}
		if err != nil {
			return err
		}
		if !p.Signed {
			u.note("%s is not signed; minisign -Sm signs it, before it is published", filepath.Base(m))
		}
	}
	return nil
}
