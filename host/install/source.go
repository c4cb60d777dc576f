package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// source is where the releases of one backend come from. The caller checks what it gives.
type source interface {
	// Versions lists the releases that there are, in no order, and maybe with some that are none; errNoList when the
	// source cannot tell.
	Versions(ctx context.Context) ([]string, error)
	// Manifest gives the manifest of a version, and its signature when there is one. Both are bounded.
	Manifest(ctx context.Context, version string) (raw, signature []byte, err error)
	// Archive copies one archive of a version, at most a.Size bytes and one more.
	Archive(ctx context.Context, version string, a release.Archive, w io.Writer) error
}

// errNoList says that a source has no list of its versions.
var errNoList = errors.New("this source cannot list its versions")

// kind says what the text of a source means.
type kind int

const (
	local     kind = iota // a directory, an archive or a manifest on this machine
	web                   // https
	registry_             // an OCI registry
)

// kindOf distinguishes sources by how they begin.
func kindOf(text string) kind {
	switch {
	case text == "." || text == ".." || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") || filepath.IsAbs(text):
		return local
	case strings.HasPrefix(text, "https://"), strings.HasPrefix(text, "http://"):
		return web
	}
	return registry_
}

const sourceForms = "write ./DIRECTORY, https://HOST/PATH/{version}, or HOST/REPOSITORY of a registry"

// CheckSource says what is wrong with the text of a source.
func CheckSource(text string) error {
	switch {
	case text == "":
		return errors.New("the source is empty; " + sourceForms)
	case len(text) > 1024 || !plaintext.IsLine(text):
		return errors.New("the source is longer than 1024 bytes or holds control characters; " + sourceForms)
	}
	switch kindOf(text) {
	case web:
		u, err := url.Parse(text)
		switch {
		case err != nil || u.Host == "":
			return fmt.Errorf("%q is no address; %s", text, sourceForms)
		case u.User != nil:
			return errors.New("a source holds no user and no password: it is written to the lock file")
		case u.RawQuery != "" || u.Fragment != "":
			return fmt.Errorf("%q: the address of a source has no ? and no #", text)
		case u.Scheme == "http" && !careful.IsLocal(u.Hostname()):
			return fmt.Errorf("%q: %w", text, careful.ErrPlain)
		}
	case registry_:
		ref := strings.TrimPrefix(text, "oci://")
		if !repositoryForm().MatchString(ref) {
			if i := strings.LastIndexAny(ref, ":@"); i > strings.LastIndexByte(ref, '/') {
				return fmt.Errorf("%q has a version in it; leave it out, and write it as version = \"1.2.3\"", text)
			}
			return fmt.Errorf("%q is no source; %s", text, sourceForms)
		}
	}
	return nil
}

// SplitVersion takes the version off a source that is written SOURCE:VERSION; version is "" when there is none.
func SplitVersion(text string) (source, version string) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.ContainsRune(text[i:], '/') {
		return text, ""
	}
	v := strings.TrimPrefix(text[i+1:], "v")
	if release.CheckVersion(v) != nil {
		return text, ""
	}
	return text[:i], v
}

// open makes a source from its text. dir is what a local one is relative to.
func (i *Installer) open(text, name, dir string) (source, error) {
	if err := CheckSource(text); err != nil {
		return nil, err
	}
	switch kindOf(text) {
	case local:
		path := text
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return openLocal(path, name)
	case web:
		return &webSource{address: strings.TrimSuffix(text, "/"), name: name, client: i.client()}, nil
	}
	return i.registry(text)
}

// registry opens the repository that a source names.
func (i *Installer) registry(text string) (Registry, error) {
	ref := strings.TrimPrefix(text, "oci://")
	if i.Registry != nil {
		return i.Registry(ref)
	}
	return newAgent(ref)
}
