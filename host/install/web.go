package install

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/release"
)

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
