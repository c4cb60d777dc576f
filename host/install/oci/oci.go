// Package oci keeps releases of backends in OCI registries. It is its own package, linked into a program of its
// own, because a registry client costs every start of a program that links it.
package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/release"
)

// How a release lies in a registry, by media types. The tag is the version. It names an index with one manifest for
// each platform, whose layer is the archive, so that a registry shows the platforms as it does those of an image; and
// with one that has no platform, whose layers are the release's own manifest and its signature. As that has the hashes
// of all archives, which are their names in a registry too, the manifests of the platforms are not needed to install.
const (
	TypeBackend   = "application/vnd.hutch.backend.v1"                   // of the index and of a platform's manifest
	TypeRelease   = "application/vnd.hutch.backend.release.v1"           // of the manifest without a platform
	TypeManifest  = "application/vnd.hutch.backend.release.v1+json"      // of the layer with the release's manifest
	TypeSignature = "application/vnd.hutch.backend.release.signature.v1" // of the layer with its signature
	TypeTarGz     = "application/vnd.hutch.backend.archive.v1.tar+gzip"  // of a layer with an archive
)

const (
	maxOCI  = 1 << 20 // bytes of an index or a manifest
	maxTags = 5000    // versions
)

// Repository is a repository of an OCI registry that holds releases of one backend.
type Repository struct {
	repo *remote.Repository
}

// Open prepares the work with a repository: HOST/PATH. It asks nothing of the registry yet.
func Open(text string, client *http.Client) (*Repository, error) {
	repo, err := remote.NewRepository(text)
	if err != nil {
		return nil, err
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("the credentials of docker: %w", err)
	}
	host, _, _ := strings.Cut(repo.Reference.Registry, ":")
	repo.PlainHTTP = careful.IsLocal(host)
	repo.MaxMetadataBytes, repo.TagListMaxPages = 1<<20, 100
	repo.Client = &auth.Client{
		Client: client, Cache: auth.NewCache(), Credential: credentials.Credential(store),
		Header: http.Header{"User-Agent": {"hutch"}},
	}
	return &Repository{repo: repo}, nil
}

var errEnough = errors.New("enough")

// Versions lists the tags that there are: the versions, and maybe others.
func (s *Repository) Versions(ctx context.Context) ([]string, error) {
	var all []string
	err := s.repo.Tags(ctx, "", func(tags []string) error {
		if all = append(all, tags...); len(all) > maxTags {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil, fmt.Errorf("%s has more than %d tags", s.repo.Reference.Repository, maxTags)
	}
	return all, s.explain(err, "")
}

// explain puts what a registry says into words.
func (s *Repository) explain(err error, version string) error {
	where := s.repo.Reference.Registry + "/" + s.repo.Reference.Repository
	if version != "" {
		where += ":" + version
	}
	var answer *errcode.ErrorResponse
	errors.As(err, &answer)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errdef.ErrNotFound), answer != nil && answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w", where, careful.ErrNone)
	case answer != nil && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		return fmt.Errorf("%s: the registry does not let you in (%d %s): docker login %s", where, answer.StatusCode,
			http.StatusText(answer.StatusCode), s.repo.Reference.Registry)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return fmt.Errorf("%s: the registry wants to know who you are, and docker's configuration has nothing for it: "+
			"docker login %s", where, s.repo.Reference.Registry)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// Manifest gives the manifest of a version, and its signature when there is one. Both are bounded.
func (s *Repository) Manifest(ctx context.Context, version string) (raw, signature []byte, err error) {
	raw, signature, err = s.read(ctx, version)
	return raw, signature, s.explain(err, version)
}

func (s *Repository) read(ctx context.Context, version string) (raw, signature []byte, err error) {
	desc, err := s.repo.Resolve(ctx, version)
	if err != nil {
		return nil, nil, err
	}
	if desc.MediaType != ocispec.MediaTypeImageIndex {
		return nil, nil, fmt.Errorf("it is no release of a backend: its type is %q", desc.MediaType)
	}
	var index ocispec.Index
	if err := s.json(ctx, desc, &index); err != nil {
		return nil, nil, err
	}
	var own *ocispec.Descriptor
	for i, m := range index.Manifests {
		if m.ArtifactType == TypeRelease {
			own = &index.Manifests[i]
		}
	}
	if index.ArtifactType != TypeBackend || own == nil {
		return nil, nil, fmt.Errorf("it is no release of a backend: its type is %q", index.ArtifactType)
	}
	var m ocispec.Manifest
	if err := s.json(ctx, *own, &m); err != nil {
		return nil, nil, err
	}
	for _, l := range m.Layers {
		switch l.MediaType {
		case TypeManifest:
			raw, err = s.blob(ctx, l, release.MaxManifest)
		case TypeSignature:
			signature, err = s.blob(ctx, l, release.MaxSignature)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if raw == nil {
		return nil, nil, errors.New("its manifest is missing")
	}
	return raw, signature, nil
}

// json reads a small JSON document and checks it against its digest.
func (s *Repository) json(ctx context.Context, d ocispec.Descriptor, v any) error {
	raw, err := s.fetch(ctx, s.repo.Manifests(), d, maxOCI)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

func (s *Repository) blob(ctx context.Context, d ocispec.Descriptor, max int64) ([]byte, error) {
	return s.fetch(ctx, s.repo.Blobs(), d, max)
}

func (s *Repository) fetch(ctx context.Context, from content.Fetcher, d ocispec.Descriptor, max int64) ([]byte, error) {
	if d.Size > max || d.Size < 0 {
		return nil, fmt.Errorf("%s is %d bytes, at most %d are taken", d.Digest, d.Size, max)
	}
	if err := d.Digest.Validate(); err != nil {
		return nil, err
	}
	r, err := from.Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return content.ReadAll(r, d)
}

// Archive copies one archive of a version, at most a.Size bytes and one more. It does not check them.
func (s *Repository) Archive(ctx context.Context, version string, a release.Archive, w io.Writer) error {
	d := ocispec.Descriptor{MediaType: TypeTarGz, Digest: digest.NewDigestFromEncoded(digest.SHA256, a.SHA256),
		Size: a.Size}
	r, err := s.repo.Blobs().Fetch(ctx, d)
	if err != nil {
		return s.explain(err, version)
	}
	defer r.Close()
	_, err = io.Copy(w, io.LimitReader(r, a.Size+1))
	return s.explain(err, version)
}

// Push stores a release under its version as tag, and returns the digest of the index. It replaces none: a version that
// was published once may be in lock files.
func (s *Repository) Push(ctx context.Context, m *release.Manifest, raw, signature []byte,
	open func(release.Archive) (io.ReadCloser, error)) (string, error) {
	switch _, err := s.repo.Resolve(ctx, m.Version); {
	case err == nil:
		return "", fmt.Errorf("%s:%s is there already: a version is published once, because lock files hold its hashes",
			s.repo.Reference.Repository, m.Version)
	case !errors.Is(err, errdef.ErrNotFound):
		return "", s.explain(err, m.Version)
	}
	d, err := s.pushAll(ctx, m, raw, signature, open)
	if err != nil {
		return "", s.explain(err, m.Version)
	}
	return d.Digest.String(), nil
}

func (s *Repository) pushAll(ctx context.Context, m *release.Manifest, raw, signature []byte,
	open func(release.Archive) (io.ReadCloser, error)) (d ocispec.Descriptor, err error) {
	if err := s.pushBlob(ctx, ocispec.DescriptorEmptyJSON, bytes.NewReader(ocispec.DescriptorEmptyJSON.Data)); err != nil {
		return d, err
	}
	notes := map[string]string{ocispec.AnnotationTitle: m.Name, ocispec.AnnotationVersion: m.Version}
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, ArtifactType: TypeBackend, Annotations: notes}
	index.SchemaVersion = 2
	for _, a := range m.Archives {
		layer := ocispec.Descriptor{MediaType: TypeTarGz, Size: a.Size,
			Digest:      digest.NewDigestFromEncoded(digest.SHA256, a.SHA256),
			Annotations: map[string]string{ocispec.AnnotationTitle: a.File}}
		f, err := open(a)
		if err != nil {
			return d, err
		}
		err = s.pushBlob(ctx, layer, f)
		f.Close()
		if err != nil {
			return d, err
		}
		pm, err := s.pushManifest(ctx, TypeBackend, layer)
		if err != nil {
			return d, err
		}
		system, arch, _ := strings.Cut(a.Platform, "/")
		pm.Platform = &ocispec.Platform{OS: system, Architecture: arch}
		index.Manifests = append(index.Manifests, pm)
	}
	layers := []ocispec.Descriptor{content.NewDescriptorFromBytes(TypeManifest, raw)}
	if err := s.pushBlob(ctx, layers[0], bytes.NewReader(raw)); err != nil {
		return d, err
	}
	if signature != nil {
		l := content.NewDescriptorFromBytes(TypeSignature, signature)
		if err := s.pushBlob(ctx, l, bytes.NewReader(signature)); err != nil {
			return d, err
		}
		layers = append(layers, l)
	}
	own, err := s.pushManifest(ctx, TypeRelease, layers...)
	if err != nil {
		return d, err
	}
	index.Manifests = append(index.Manifests, own)
	doc, err := json.Marshal(index)
	if err != nil {
		return d, err
	}
	d = content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, doc)
	// The tag comes last: before it nobody can see half a release.
	return d, s.repo.Manifests().PushReference(ctx, d, bytes.NewReader(doc), m.Version)
}

func (s *Repository) pushBlob(ctx context.Context, d ocispec.Descriptor, r io.Reader) error {
	if there, err := s.repo.Blobs().Exists(ctx, d); err == nil && there {
		return nil
	}
	return s.repo.Blobs().Push(ctx, d, r)
}

func (s *Repository) pushManifest(ctx context.Context, artifact string,
	layers ...ocispec.Descriptor) (ocispec.Descriptor, error) {
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact,
		Config: ocispec.DescriptorEmptyJSON, Layers: layers}
	m.SchemaVersion = 2
	m.Config.Data = nil
	doc, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, doc)
	d.ArtifactType = artifact
	return d, s.repo.Manifests().Push(ctx, d, bytes.NewReader(doc))
}
