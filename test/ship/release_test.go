package ship

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/test/e2e"
)

// native is the platform that the tests run on, and other one that they only build for.
const native = runtime.GOOS + "/" + runtime.GOARCH

var other = map[bool]string{true: "linux/amd64", false: "linux/arm64"}[runtime.GOARCH == "arm64"]

// makeRelease runs make release for this platform, with all that is shipped unless args say otherwise, and returns the
// directory.
func makeRelease(t *testing.T, args ...string) string {
	t.Helper()
	dist := filepath.Join(t.TempDir(), "dist")
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // it compiles
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", append([]string{"-C", "../..", "release", "VERSION=7.8.9", "PLATFORMS=" + native}, args...)...)
	cmd.Env = append(os.Environ(), "DIST="+dist)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make release %q: %v\n%s", args, err, out)
	}
	return dist
}

// A release is made, published and used: host and backend are apart, and each is whole.
func TestRelease(t *testing.T) {
	e2e.Require(t, "bwrap")
	e2e.Require(t, "make")
	registry := newRegistry(t, nil)
	dist := makeRelease(t, "PUSH="+registry+"/hutch/hutch-backend-{name}")

	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = dist
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	licence := func(name string) []string { return []string{"LICENSE", "hutch-backend-" + name + ".cdx.json"} }
	want := map[string][]string{}
	mains, err := filepath.Glob("../../plugins/*/main.go")
	if err != nil || len(mains) < 5 {
		t.Fatalf("got %v, %v", mains, err)
	}
	for _, main := range mains {
		if name := filepath.Base(filepath.Dir(main)); name != "fake" {
			want[name] = append([]string{"hutch-backend-" + name}, licence(name)...)
		}
	}
	want["podman"] = append(want["podman"], "hutch-podman-agent")
	want["kubernetes"] = append(want["kubernetes"], "hutch-kubernetes-agent")
	want["lima"] = append(want["lima"], "hutch-lima-guest")
	versions := map[string]string{}
	for name, want := range want {
		m := manifestOf(t, dist, name)
		versions[name] = m.Version
		if diff := cmp.Diff([]string{native}, m.Platforms()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		got := files(t, filepath.Join(dist, release.ArchiveName(name, m.Version, native)+".tar.gz"), "")
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the archive of %s (-want +got):\n%s", name, diff)
		}
	}

	// One backend for two platforms, and no host.
	both := makeRelease(t, "BACKENDS=bwrap", "PLATFORMS="+native+" "+other, "HOST_PLATFORMS=none")
	m := manifestOf(t, both, "bwrap")
	version := m.Version
	machines := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}
	for _, platform := range []string{native, other} {
		to := t.TempDir()
		files(t, filepath.Join(both, release.ArchiveName("bwrap", version, platform)+".tar.gz"), to)
		program, err := elf.Open(filepath.Join(to, "hutch-backend-bwrap"))
		if err != nil {
			t.Fatal(err)
		}
		if program.Machine != machines[platform] {
			t.Errorf("the program for %s is for %s", platform, program.Machine)
		}
		program.Close()
	}
	if left, err := filepath.Glob(filepath.Join(both, "hutch_*")); err != nil || len(left) > 0 {
		t.Errorf("a host was made for none: %v, %v", left, err)
	}

	// The host brings along every program that it starts.
	name := "hutch_7.8.9_" + runtime.GOOS + "_" + runtime.GOARCH
	root := t.TempDir()
	programs := []string{"bin/hutch", "libexec/hutch/hutch-podman-agent", "libexec/hutch/hutch-lima-guest", "libexec/hutch/hutch-kubernetes-agent",
		"share/doc/hutch/CHANGELOG.md", "share/doc/hutch/LICENSE", "share/doc/hutch/README.md", "share/doc/hutch/hutch.cdx.json",
		"share/man/man1/hutch.1", "share/man/man1/hutch-run.1", "share/bash-completion/completions/hutch"}
	commands, err := filepath.Glob("../../cmd/hutch-*")
	if err != nil || len(commands) == 0 {
		t.Fatalf("got %v, %v", commands, err)
	}
	for _, c := range commands {
		programs = append(programs, "libexec/hutch/"+filepath.Base(c))
	}
	for name := range want {
		programs = append(programs, "libexec/hutch/hutch-backend-"+name)
	}
	got := files(t, filepath.Join(dist, name+".tar.gz"), root)
	for _, w := range programs {
		if !strings.Contains(strings.Join(got, "\n")+"\n", name+"/"+w+"\n") {
			t.Errorf("the host's archive has no %s: %q", w, got)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dist, name+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string                           `json:"bomFormat"`
		Components []struct{ Name, Version string } `json:"components"`
	}
	if err := json.Unmarshal(raw, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Errorf("%q, %v", bom.BOMFormat, err)
	}
	for _, part := range []string{"hutch-agent", "hutch-backend-bwrap", "stdlib", "google.golang.org/grpc", "oras.land/oras-go/v2"} { // the last one is in hutch-agent alone
		found := false
		for _, c := range bom.Components {
			found = found || c.Name == part
		}
		if !found {
			t.Errorf("the host's bill of materials has no %s", part)
		}
	}

	// What was released works, with the backends from the registry.
	project := t.TempDir()
	text := "hutch {\n  required_backends {\n    bwrap = { source = \"" + registry + "/both/hutch-backend-bwrap\" }\n"
	for name := range versions {
		if name != "bwrap" {
			text += "    " + name + " = { source = \"" + registry + "/hutch/hutch-backend-" + name + "\" }\n"
		}
	}
	text += "  }\n}\nrun \"a\" {\n  backend \"bwrap\" {}\n  command = [\"echo\", \"released\"]\n}\n"
	if err := os.WriteFile(filepath.Join(project, "a.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	hutch := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, name, "bin", "hutch"), args...)
		cmd.Dir = project
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+filepath.Join(project, ".hutch"), "HUTCH_BACKEND_PATH=", "XDG_RUNTIME_DIR=", "DOCKER_CONFIG=/nonexistent")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("hutch %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	has(t, hutch("--version"), "hutch 7.8.9\n")
	has(t, hutch("backend", "publish", both, registry+"/both/hutch-backend-{name}"), registry+"/both/hutch-backend-bwrap:"+version)
	said := hutch("init")
	for name, version := range versions {
		has(t, said, name+" "+version+" from "+registry)
	}
	locks, err := lockfile.Read(project)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range m.Archives { // the lock file is the same for everybody
		l, ok := locks.Find("bwrap").For(a.Platform)
		if !ok || l.Archive != a.SHA256 || l.Binary != a.BinarySHA256 || l.Beside != a.BesideSHA256 {
			t.Errorf("%s is locked as %+v, and was released as %+v", a.Platform, l, a)
		}
	}
	has(t, hutch("run", "-q", "a.hcl"), "released\n")
	list := hutch("backend", "list", "a.hcl")
	for name := range versions {
		has(t, list, "hutch-backend-"+name)
	}
}

// manifestOf reads the one manifest of a backend in a directory. Its version is the backend's own and not the host's.
func manifestOf(t *testing.T, dist, name string) *release.Manifest {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dist, release.ManifestName(name, "*")))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%s: got %v, %v", name, paths, err)
	}
	raw, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	m, err := release.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version == "7.8.9" {
		t.Errorf("%s has the host's version, and not its own", name)
	}
	return m
}

// files lists what is in an archive, and unpacks it below a directory when one is named.
func files(t *testing.T, path, to string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.IsZero() && h.ModTime.Unix() != 0 || h.Uid != 0 || h.Gid != 0 || h.Uname+h.Gname != "" || h.Mode&0o022 != 0 {
			t.Errorf("%s in %s says where it was made: %+v", h.Name, path, h)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		names = append(names, h.Name)
		if to == "" {
			continue
		}
		out := filepath.Join(to, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			t.Fatal(err)
		}
		w, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(h.Mode)&0o777)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
