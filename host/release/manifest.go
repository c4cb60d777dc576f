// Package release is the form in which a backend is given away: archives, one for each platform, and one manifest that
// names them all with their hashes.
//
// The files of one release lie side by side, in a directory, on a web server or in a registry:
//
//	hutch-backend-acme_1.2.0_manifest.json           the manifest
//	hutch-backend-acme_1.2.0_manifest.json.minisig   its signature by minisign, if there is one
//	hutch-backend-acme_1.2.0_linux_amd64.tar.gz      the archives
//	hutch-backend-acme_1.2.0_linux_arm64.tar.gz
//
// An archive holds hutch-backend-acme, and beside it what that needs. The manifest has the SHA-256 of every archive and
// of the program in it, so anyone who has checked the manifest can check the rest, and a lock file can name all
// platforms without any of the archives having been fetched. A signature of the manifest is a signature of the release.
package release

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// Format is what a manifest calls itself.
const Format = "hutch.release/v1"

// Bounds of what is read.
const (
	MaxManifest  = 256 << 10 // bytes
	MaxSignature = 4 << 10   // bytes
	MaxArchive   = 512 << 20 // bytes of one archive
	maxArchives  = 64        // platforms
	maxProtocols = 16
)

// Manifest describes one release of one backend.
type Manifest struct {
	Format    string    `json:"format"`
	Name      string    `json:"name"`      // NAME of hutch-backend-NAME
	Version   string    `json:"version"`   // semantic, without a leading v
	Protocols []int     `json:"protocols"` // major versions of the contract, ascending
	Archives  []Archive `json:"archives"`  // by platform
}

// Archive is the release for one platform.
type Archive struct {
	Platform     string `json:"platform"` // as GOOS/GOARCH: linux/amd64
	File         string `json:"file"`     // name beside the manifest
	Size         int64  `json:"size"`     // bytes
	SHA256       string `json:"sha256"`   // hex
	BinarySHA256 string `json:"binary_sha256"`
	BesideSHA256 string `json:"beside_sha256,omitempty"` // backend.BesideSHA256 of what is in it; "" in releases that do not say
}

// lazy compiles an expression at its first use: most calls of hutch never need it.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

var (
	platformForm = lazy(`^[a-z0-9]{2,16}/[a-z0-9_]{2,16}$`)
	// A version is part of names of files, paths and tags: no build metadata, whose + a tag cannot have.
	versionForm = lazy(`^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(-[0-9A-Za-z.-]{1,40})?$`)
)

// CheckVersion says what is wrong with the version of a release.
func CheckVersion(v string) error {
	if !versionForm().MatchString(v) {
		return fmt.Errorf("%q is no version of a release: write it as 1.2.3, or 1.2.3-rc.1", v)
	}
	if _, err := version.NewSemver(v); err != nil {
		return fmt.Errorf("%q is no version of a release: write it as 1.2.3, or 1.2.3-rc.1", v)
	}
	return nil
}

// CheckPlatform says what is wrong with the name of a platform.
func CheckPlatform(p string) error {
	if !platformForm().MatchString(p) {
		return fmt.Errorf("%q is no platform: write it as Go does, linux/amd64", p)
	}
	return nil
}

// CheckSHA256 says what is wrong with a hash.
func CheckSHA256(s string) error {
	if raw, err := hex.DecodeString(s); err != nil || len(raw) != 32 || strings.ToLower(s) != s {
		return fmt.Errorf("%q is no SHA-256 in lower-case hex", s)
	}
	return nil
}

// ManifestName is the name of the file that a manifest is in.
func ManifestName(name, version string) string {
	return fmt.Sprintf("%s%s_%s_manifest.json", backend.Prefix, name, version)
}

// SignatureName is the name of the file with the signature of a manifest.
func SignatureName(manifest string) string { return manifest + ".minisig" }

// ArchiveName is the name of an archive without its ending.
func ArchiveName(name, version, platform string) string {
	return fmt.Sprintf("%s%s_%s_%s", backend.Prefix, name, version, strings.ReplaceAll(platform, "/", "_"))
}

var manifestForm = lazy(`^` + backend.Prefix + `([a-z][a-z0-9-]*)_([^_/]+)_manifest\.json$`)

// SplitManifestName is the reverse of ManifestName; ok is false for any other name.
func SplitManifestName(file string) (name, version string, ok bool) {
	m := manifestForm().FindStringSubmatch(file)
	if m == nil || backend.CheckName(m[1]) != nil || CheckVersion(m[2]) != nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// For finds the archive of a platform.
func (m *Manifest) For(platform string) (Archive, bool) {
	for _, a := range m.Archives {
		if a.Platform == platform {
			return a, true
		}
	}
	return Archive{}, false
}

// Platforms lists what there are archives for.
func (m *Manifest) Platforms() []string {
	var all []string
	for _, a := range m.Archives {
		all = append(all, a.Platform)
	}
	return all
}

// Encode writes the manifest, the same bytes for the same manifest.
func (m *Manifest) Encode() ([]byte, error) {
	c := *m
	c.Format = Format
	c.Protocols = slices.Clone(m.Protocols)
	slices.Sort(c.Protocols)
	c.Archives = slices.Clone(m.Archives)
	slices.SortFunc(c.Archives, func(a, b Archive) int { return strings.Compare(a.Platform, b.Platform) })
	if err := c.check(); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetIndent("", "  ")
	if err := enc.Encode(&c); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Parse reads a manifest that may be hostile. Fields that it does not know are left to newer versions of hutch.
func Parse(raw []byte) (*Manifest, error) {
	if len(raw) > MaxManifest {
		return nil, fmt.Errorf("the manifest is larger than %d bytes", MaxManifest)
	}
	var m Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("the manifest is not what it should be: %w", err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("the manifest is not what it should be: %w", err)
	}
	return &m, nil
}

func (m *Manifest) check() error {
	if m.Format != Format {
		return fmt.Errorf("its format is %q, and this hutch reads %s", m.Format, Format)
	}
	if err := backend.CheckName(m.Name); err != nil {
		return err
	}
	if err := CheckVersion(m.Version); err != nil {
		return err
	}
	switch {
	case len(m.Protocols) == 0:
		return errors.New("it names no protocol")
	case len(m.Protocols) > maxProtocols:
		return fmt.Errorf("it names more than %d protocols", maxProtocols)
	case len(m.Archives) == 0:
		return errors.New("it names no archive")
	case len(m.Archives) > maxArchives:
		return fmt.Errorf("it names more than %d archives", maxArchives)
	}
	last := 0
	for _, p := range m.Protocols {
		if p <= last {
			return errors.New("its protocols are not positive numbers in ascending order")
		}
		last = p
	}
	seen := map[string]bool{}
	for _, a := range m.Archives {
		if err := a.check(); err != nil {
			return fmt.Errorf("archive %q: %w", a.File, err)
		}
		for _, key := range []string{"platform " + a.Platform, "file " + a.File} {
			if seen[key] {
				return fmt.Errorf("%s is there twice", key)
			}
			seen[key] = true
		}
	}
	return nil
}

func (a Archive) check() error {
	if err := CheckPlatform(a.Platform); err != nil {
		return err
	}
	if err := safepath.Check(a.File); err != nil || strings.Contains(a.File, "/") {
		return errors.New("it must be the plain name of a file")
	}
	if !strings.HasSuffix(a.File, ".tar.gz") {
		return errors.New("it must end in .tar.gz")
	}
	if a.Size <= 0 || a.Size > MaxArchive {
		return fmt.Errorf("its size is %d, and must be between 1 and %d", a.Size, MaxArchive)
	}
	if err := CheckSHA256(a.SHA256); err != nil {
		return err
	}
	if err := CheckSHA256(a.BinarySHA256); err != nil || a.BesideSHA256 == "" {
		return err
	}
	return CheckSHA256(a.BesideSHA256)
}
