package install

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/hutch-run/hutch/host/install/oci"
	"github.com/hutch-run/hutch/host/release"
)

// registryAt runs a registry on this machine, with h before it, and returns a source in it.
func registryAt(t *testing.T, h func(rw http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // nobody's credentials
	reg := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if h == nil || !h(rw, r) {
			reg.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/acme/hutch-backend-acme"
}

func (w *world) publish(version, to string) *Published {
	w.t.Helper()
	p, err := w.Publish(context.Background(), filepath.Join(w.dist, release.ManifestName("acme", version)), to)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func TestRegistry(t *testing.T) {
	var blobs []string
	source := registryAt(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			blobs = append(blobs, r.URL.Path)
		}
		return false
	})
	w := newWorld(t)
	public, private := keyPair(t)
	w.Trust = Trust{Required: true, Keys: map[string][]string{source: {public.String()}}}
	for _, v := range []string{"1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1"} {
		w.release(v)
		w.sign(v, private)
		if p := w.publish(v, source); p.Name != "acme" || !p.Signed || len(p.Platforms) != 2 || !strings.HasPrefix(p.Digest, "sha256:") {
			t.Errorf("published %+v", p)
		}
	}
	if err := os.RemoveAll(w.dist); err != nil {
		t.Fatal(err)
	}
	got := w.must(InitOptions{}, w.requires(source, ">= 1.0"))
	if got.Version != "1.10.0" || got.Signed == "" || !strings.Contains(w.program(got.Path), "1.10.0 for "+here) {
		t.Errorf("got %+v", got)
	}
	if len(blobs) != 3 { // the manifest, its signature, the archive of this platform and of no other
		t.Errorf("fetched %v", blobs)
	}
	if got := w.must(InitOptions{Upgrade: true}, w.requires(source, "1.0.0")); got.Version != "1.0.0" || got.Was != "1.10.0" {
		t.Errorf("exactly: %+v", got)
	}
	o, err := w.Install(context.Background(), "", source+":1.9.0", filepath.Join(w.Dir, "lock.hcl"))
	if err != nil || o.Lock.Version != "1.9.0" || o.Lock.Name != "acme" {
		t.Errorf("got %+v, %v", o, err)
	}
	w.refused("has no version that fits", InitOptions{Upgrade: true}, w.requires(source, ">= 3"))
	w.refused("there is nothing of that name", InitOptions{Upgrade: true}, w.requires(source, "9.9.9"))
	w.refused("there is nothing of that name", InitOptions{Upgrade: true}, w.requires(source+"2", ""))
}

func TestPublishRefusals(t *testing.T) {
	source := registryAt(t, nil)
	w := newWorld(t)
	m := w.release("1.0.0")
	w.publish("1.0.0", source)
	manifest := filepath.Join(w.dist, release.ManifestName("acme", "1.0.0"))
	refused := func(want, manifest, to string) {
		t.Helper()
		if _, err := w.Publish(context.Background(), manifest, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	refused("is published once", manifest, source)
	refused("is no registry", manifest, "./elsewhere")
	refused("is no manifest", filepath.Join(w.dist, m.Archives[0].File), source)
	// What does not fit its manifest is not sent.
	w.release("1.1.0")
	a, _ := m.For(here)
	w.write(filepath.Join(w.dist, release.ArchiveName("acme", "1.1.0", here)+".tar.gz"), w.program(filepath.Join(w.dist, a.File)), 0o644)
	refused("linux_amd64", filepath.Join(w.dist, release.ManifestName("acme", "1.1.0")), source)
	if _, err := w.init(InitOptions{}, w.requires(source, "1.1.0")); err == nil {
		t.Error("it was published all the same")
	}
}

// A private registry is logged in to by docker's configuration.
func TestCredentials(t *testing.T) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:secret"))
	source := registryAt(t, func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == want {
			return false
		}
		rw.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		rw.WriteHeader(http.StatusUnauthorized)
		return true
	})
	w := newWorld(t)
	w.release("1.0.0")
	manifest := filepath.Join(w.dist, release.ManifestName("acme", "1.0.0"))
	host, _, _ := strings.Cut(source, "/")
	if _, err := w.Publish(context.Background(), manifest, source); err == nil || !strings.Contains(err.Error(), "docker login "+host) {
		t.Errorf("without credentials: %v", err)
	}
	w.write(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"),
		fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, strings.TrimPrefix(want, "Basic ")), 0o600)
	w.publish("1.0.0", source)
	w.must(InitOptions{}, w.requires(source, ""))
}

// The address of a token server is the registry's word: credentials are not sent there in clear.
func TestTokensAreNotAskedForInClear(t *testing.T) {
	source := registryAt(t, func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.Header().Set("WWW-Authenticate", `Bearer realm="http://192.0.2.1/token",service="x"`)
		rw.WriteHeader(http.StatusUnauthorized)
		return true
	})
	host, _, _ := strings.Cut(source, "/")
	w := newWorld(t)
	w.write(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), fmt.Sprintf(`{"auths":{%q:{"auth":"bWU6c2VjcmV0"}}}`, host), 0o600)
	w.refused("http is only for this machine", InitOptions{}, w.requires(source, "1.0.0"))
}

// A registry that answers what it likes.
func TestHostileRegistries(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		index      func(i *ocispec.Index)
		manifest   func(m *ocispec.Manifest)
		h          func(rw http.ResponseWriter, r *http.Request) bool
	}{
		{name: "an image", want: "it is no release of a backend", index: func(i *ocispec.Index) { i.ArtifactType = "" }},
		{name: "no release in it", want: "it is no release of a backend", index: func(i *ocispec.Index) { i.Manifests = nil }},
		{name: "a giant manifest", want: "at most 1048576 are taken", index: func(i *ocispec.Index) { i.Manifests[0].Size = 1 << 40 }},
		{name: "a negative size", want: "are taken", index: func(i *ocispec.Index) { i.Manifests[0].Size = -1 }},
		{name: "no digest", want: "digest", index: func(i *ocispec.Index) { i.Manifests[0].Digest = "../../etc/passwd" }},
		{name: "a giant layer", want: "at most 262144 are taken", manifest: func(m *ocispec.Manifest) { m.Layers[0].Size = 1 << 40 }},
		{name: "layers without a manifest", want: "its manifest is missing", manifest: func(m *ocispec.Manifest) { m.Layers = nil }},
		{name: "another blob", want: "acme", h: func(rw http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet {
				fmt.Fprint(rw, strings.Repeat("x", 500))
				return true
			}
			return false
		}},
		{name: "tags without an end", want: "", h: func(rw http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/tags/list") {
				return false
			}
			rw.Header().Set("Link", `<`+r.URL.Path+`?last=x>; rel="next"`)
			fmt.Fprint(rw, `{"name":"x","tags":["1.0.0","`+strings.Repeat("y", 100)+`"]}`)
			return true
		}},
		{name: "a redirect to elsewhere", want: "http is only for this machine", h: func(rw http.ResponseWriter, r *http.Request) bool {
			http.Redirect(rw, r, "http://192.0.2.1/v2/", http.StatusTemporaryRedirect)
			return true
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var index, own []byte
			var ownDigest digest.Digest
			source := registryAt(t, func(rw http.ResponseWriter, r *http.Request) bool {
				if tt.h != nil && tt.h(rw, r) {
					return true
				}
				body, kind := index, ocispec.MediaTypeImageIndex
				if ownDigest != "" && strings.HasSuffix(r.URL.Path, string(ownDigest)) {
					body, kind = own, ocispec.MediaTypeImageManifest
				} else if index == nil || !strings.Contains(r.URL.Path, "/manifests/") {
					return false
				}
				rw.Header().Set("Content-Type", kind)
				rw.Header().Set("Docker-Content-Digest", digest.FromBytes(body).String())
				rw.Header().Set("Content-Length", fmt.Sprint(len(body)))
				if r.Method == http.MethodGet {
					rw.Write(body)
				}
				return true
			})
			raw := []byte(`{"format":"hutch.release/v1"}`)
			m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: oci.TypeRelease,
				Layers: []ocispec.Descriptor{{MediaType: oci.TypeManifest, Digest: digest.FromBytes(raw), Size: int64(len(raw))}}}
			if tt.manifest != nil {
				tt.manifest(&m)
			}
			own, _ = json.Marshal(m)
			ownDigest = digest.FromBytes(own)
			i := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, ArtifactType: oci.TypeBackend, Manifests: []ocispec.Descriptor{
				{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: oci.TypeRelease, Digest: ownDigest, Size: int64(len(own))}}}
			if tt.index != nil {
				tt.index(&i)
			}
			index, _ = json.Marshal(i)
			w := newWorld(t)
			constraint := "1.0.0"
			if strings.HasPrefix(tt.name, "tags") {
				constraint = ">= 1.0"
			}
			w.refused(tt.want, InitOptions{}, w.requires(source, constraint))
		})
	}
}
