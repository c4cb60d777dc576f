// Command ociimage writes a container image as an OCI layout, without a daemon. Its layers are tar archives of root
// file systems, the lowest first. The same layers give the same bytes.
//
//	ociimage NAME VERSION OS/ARCH CREATED DIR LAYER.tar…
//
// CREATED is in seconds since 1970. DIR must not exist yet.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if len(os.Args) < 7 {
		fmt.Fprintln(os.Stderr, "usage: ociimage NAME VERSION OS/ARCH CREATED DIR LAYER.tar…")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6:]); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run(name, version, platform, created, dir string, layers []string) error {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s exists already", dir)
	}
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(created, 10, 64)
	if err != nil {
		return fmt.Errorf("the time of creation: %w", err)
	}
	at := v1.Time{Time: time.Unix(seconds, 0).UTC()}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.OS, Architecture: p.Architecture, Created: at, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Cmd: []string{"bash"},
			Labels: map[string]string{
				"org.opencontainers.image.title": name, "org.opencontainers.image.version": version,
				"org.opencontainers.image.source":   "https://github.com/hutch-run/hutch",
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return err
	}
	for _, file := range layers {
		layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		history := v1.History{Created: at, CreatedBy: filepath.Base(file)}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: history}); err != nil {
			return err
		}
	}
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return to.AppendImage(image, layout.WithPlatform(*p),
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "localhost/" + name + ":" + version}))
}
