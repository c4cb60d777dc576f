package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/helper"
	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk/plaintext"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
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
	case text == "." || text == ".." || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") ||
		filepath.IsAbs(text):
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

// SplitVersion takes the version off a source that is written SOURCE:VERSION; version may be "".
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

// maxFiles bounds a directory of releases.
const maxFiles = 10_000

// dirSource is a directory that holds releases.
type dirSource struct {
	dir  string
	name string
}

// openLocal distinguishes a directory from an archive.
func openLocal(path, name string) (source, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such file or directory", path)
	case err != nil:
		return nil, err
	case st.IsDir():
		return &dirSource{dir: path, name: name}, nil
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is neither a directory nor a file", path)
	}
	if m := archiveForm().FindStringSubmatch(filepath.Base(path)); m != nil {
		return newArchiveSource(path, m[1], m[2], m[3]+"/"+m[4])
	}
	if st.Mode()&0o111 != 0 {
		return nil,
			fmt.Errorf("%s is a program and no release: for development, name it in backend_paths of your configuration or "+
				"in %s", path, backend.EnvPath)
	}
	return nil, fmt.Errorf("%s is neither a directory of releases nor an archive %sNAME_VERSION_OS_ARCH.tar.gz", path,
		backend.Prefix)
}

// Versions implements source.
func (s *dirSource) Versions(context.Context) ([]string, error) {
	d, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("%s holds more than %d files", s.dir, maxFiles)
	}
	var all []string
	for _, n := range names {
		if name, version, ok := release.SplitManifestName(n); ok && name == s.name {
			all = append(all, version)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no %s", s.dir, release.ManifestName(s.name, "VERSION"))
	}
	return all, nil
}

// Manifest implements source.
func (s *dirSource) Manifest(_ context.Context, version string) (raw, signature []byte, err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	file := release.ManifestName(s.name, version)
	if raw, err = safefile.ReadFile(root, file, release.MaxManifest); err != nil {
		return nil, nil, fmt.Errorf("in %s: %w", s.dir, err)
	}
	signature, err = safefile.ReadFile(root, release.SignatureName(file), release.MaxSignature)
	if errors.Is(err, fs.ErrNotExist) {
		signature, err = nil, nil
	}
	return raw, signature, err
}

// Archive implements source.
func (s *dirSource) Archive(ctx context.Context, _ string, a release.Archive, w io.Writer) error {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = safefile.Copy(ctx, w, root, a.File, a.Size)
	return err
}

// archiveForm is what the name of an archive says.
var archiveForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^` + backend.Prefix + `([a-z][a-z0-9-]*)_([^_/]+)_([a-z0-9]+)_([a-z0-9_]+?)\.tar\.gz$`)
})

// archiveSource is one archive without a manifest, which is made up from what is in it.
type archiveSource struct {
	dirSource
	m *release.Manifest
}

func newArchiveSource(path, name, version, platform string) (source, error) {
	for _, err := range []error{backend.CheckName(name), release.CheckVersion(version), release.CheckPlatform(platform)} {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return &archiveSource{
		dirSource: dirSource{dir: filepath.Dir(path), name: name},
		m: &release.Manifest{Name: name, Version: version, Protocols: []int{protocol},
			Archives: []release.Archive{{Platform: platform, File: filepath.Base(path)}}},
	}, nil
}

// Versions implements source.
func (s *archiveSource) Versions(context.Context) ([]string, error) {
	return []string{s.m.Version}, nil
}

// Manifest implements source.
func (s *archiveSource) Manifest(ctx context.Context, version string) (raw, signature []byte, err error) {
	a := s.m.Archives[0]
	if version != s.m.Version {
		return nil, nil, fmt.Errorf("%s is version %s, and not %s", a.File, s.m.Version, version)
	}
	tmp, err := store.MkdirTemp("archive")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(tmp)
	a.Size = release.MaxArchive
	got, err := fetch(ctx, s, version, a, tmp)
	if err != nil {
		return nil, nil, err
	}
	tree := filepath.Join(tmp, "tree")
	if err := unpack(ctx, got.path, tree); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.File, err)
	}
	a.Size, a.SHA256 = got.size, got.sha256
	if a.BinarySHA256, err = hashBinary(tree, s.name); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.File, err)
	}
	if a.BesideSHA256, err = backend.BesideSHA256(tree, s.name); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.File, err)
	}
	m := *s.m
	m.Archives = []release.Archive{a}
	raw, err = m.Encode()
	return raw, nil, err
}

// webSource is a directory on a web server that holds the files of one release, with {version} in its address where
// that differs from one release to the next, as on GitHub:
//
//	https://github.com/acme/hutch-backend-acme/releases/download/v{version}
type webSource struct {
	address string
	name    string
	client  *http.Client
}

// Versions implements source.
func (s *webSource) Versions(context.Context) ([]string, error) { return nil, errNoList }

func (s *webSource) file(version, file string) string {
	return strings.ReplaceAll(s.address, "{version}", version) + "/" + file
}

// Manifest implements source.
func (s *webSource) Manifest(ctx context.Context, version string) (raw, signature []byte, err error) {
	file := release.ManifestName(s.name, version)
	var m, sig bytes.Buffer
	if err := careful.Get(ctx, s.client, s.file(version, file), release.MaxManifest, &m); err != nil {
		return nil, nil, err
	}
	err = careful.Get(ctx, s.client, s.file(version, release.SignatureName(file)), release.MaxSignature, &sig)
	switch {
	case errors.Is(err, careful.ErrNone):
		return m.Bytes(), nil, nil
	case err != nil:
		return nil, nil, err
	}
	return m.Bytes(), sig.Bytes(), nil
}

// Archive implements source.
func (s *webSource) Archive(ctx context.Context, version string, a release.Archive, w io.Writer) error {
	return careful.Get(ctx, s.client, s.file(version, a.File), a.Size, w)
}

// Registry is one repository of a registry. [oci.Repository] is one.
type Registry interface {
	source
	Push(ctx context.Context, m *release.Manifest, raw, signature []byte,
		open func(release.Archive) (io.ReadCloser, error)) (string, error)
}

// repositoryForm is HOST[:PORT]/PATH. A host has a dot or a port, or is localhost: a host with neither is more likely a
// mistake.
var repositoryForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]{1,5}|\[[0-9A-Fa-f:]+\])` +
		`(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+$`)
})

// agent is a repository that is reached through hutch-agent.
type agent struct {
	program string
	ref     string
}

func newAgent(ref string) (*agent, error) {
	_, program, err := helper.Find()
	return &agent{program: program, ref: ref}, err
}

// Answer is what hutch-agent prints as its last or only line on stdout, or for archive as its last on stderr.
type Answer struct {
	Versions  []string `json:"versions,omitempty"`
	Manifest  []byte   `json:"manifest,omitempty"`
	Signature []byte   `json:"signature,omitempty"`
	Digest    string   `json:"digest,omitempty"`
	Error     string   `json:"error,omitempty"`
	None      bool     `json:"none,omitempty"` // the error is that there is nothing of that name
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 2 << 20

// run makes one call. Data goes to w when it is not nil, and then the answer comes on stderr.
func (h *agent) run(ctx context.Context, w io.Writer, args ...string) (*Answer, error) {
	cmd := exec.CommandContext(ctx, h.program, append([]string{"registry"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	answer := keep.Head{Max: maxAnswer}
	if w == nil {
		cmd.Stdout = &answer
		cmd.Stderr = os.Stderr
	} else {
		cmd.Stdout, cmd.Stderr = w, &answer
	}
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var a Answer
	if jerr := json.Unmarshal(answer.Bytes(), &a); jerr != nil {
		if err == nil {
			err = jerr
		}
		return nil, fmt.Errorf("%s: %w: %s", helper.Name, err, termsafe.Line(answer.String()))
	}
	switch {
	case a.Error != "" && a.None:
		return nil, fmt.Errorf("%s: %w", strings.TrimSuffix(a.Error, ": "+careful.ErrNone.Error()), careful.ErrNone)
	case a.Error != "":
		return nil, errors.New(a.Error)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", helper.Name, err)
	}
	return &a, nil
}

// Versions implements [Registry].
func (h *agent) Versions(ctx context.Context) ([]string, error) {
	a, err := h.run(ctx, nil, "versions", h.ref)
	if err != nil {
		return nil, err
	}
	return a.Versions, nil
}

// Manifest implements [Registry].
func (h *agent) Manifest(ctx context.Context, version string) (raw, signature []byte, err error) {
	a, err := h.run(ctx, nil, "manifest", h.ref, version)
	if err != nil {
		return nil, nil, err
	}
	return a.Manifest, a.Signature, nil
}

// Archive implements [Registry].
func (h *agent) Archive(ctx context.Context, version string, a release.Archive, w io.Writer) error {
	_, err := h.run(ctx, w, "archive", h.ref, version, a.SHA256, fmt.Sprint(a.Size))
	return err
}

// Push implements [Registry]. The archives must be files.
func (h *agent) Push(ctx context.Context, m *release.Manifest, _, _ []byte,
	open func(release.Archive) (io.ReadCloser, error)) (string, error) {
	f, err := open(m.Archives[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	file, ok := f.(*os.File)
	if !ok {
		return "", errors.New("a release is published from a directory")
	}
	manifest := filepath.Join(filepath.Dir(file.Name()), release.ManifestName(m.Name, m.Version))
	a, err := h.run(ctx, nil, "push", h.ref, manifest)
	if err != nil {
		return "", err
	}
	return a.Digest, nil
}

// Bounds of what an archive may unpack to.
var caps = tree.Caps{Entries: 2000, Bytes: 1 << 30, Depth: 16}

// fetched is an archive that is on disk.
type fetched struct {
	path   string
	size   int64
	sha256 string
}

// fetch copies an archive into dir and hashes it on the way.
func fetch(ctx context.Context, s source, version string, a release.Archive, dir string) (fetched, error) {
	f, err := os.OpenFile(filepath.Join(dir, "archive"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fetched{}, err
	}
	got, err := download(ctx, s, version, a, f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	got.path = f.Name()
	return got, err
}

// download copies an archive, and says what came.
func download(ctx context.Context, s source, version string, a release.Archive, w io.Writer) (fetched, error) {
	h := sha256.New()
	n := new(counter)
	err := s.Archive(ctx, version, a, io.MultiWriter(w, h, n))
	return fetched{size: int64(*n), sha256: hex.EncodeToString(h.Sum(nil))}, err
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// unpack unpacks an archive that may be hostile into a new directory.
func unpack(ctx context.Context, archive, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = tree.Unpack(ctx, f, root, caps)
	return err
}

// hashBinary hashes the backend in an unpacked tree.
func hashBinary(dir, name string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	file := backend.Prefix + name
	st, err := root.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no %s in it", file)
	case err != nil:
		return "", err
	case st.Mode()&0o100 == 0:
		return "", fmt.Errorf("%s in it is not executable", file)
	}
	c, err := safefile.Copy(context.Background(), io.Discard, root, file, caps.Bytes)
	return c.SHA256, err
}
