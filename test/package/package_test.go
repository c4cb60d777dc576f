// Package packaging makes the packages of a release and installs each into a clean root file system, as its users do.
package packaging

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

const (
	version = "7.8.9"
	name    = "hutch_" + version + "_linux_" + runtime.GOARCH
	debian  = "localhost/hutch-test-debian:" + version
	image   = "localhost/hutch:" + version
	other   = "localhost/hutch-test-root:" + version
)

// Flags of podman under which sandboxes can be made in a container; docs/packages.md names them for users.
const (
	asRoot = "--privileged"
	asUser = "--user=1000 --security-opt=seccomp=unconfined --security-opt=unmask=ALL"
)

// run runs a program to its end and returns its stdout.
func run(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", program, args, err, out, &stderr)
	}
	return string(out)
}

// container runs a script in a container of an image, which sees the packages in dist at /dist, and wants that it
// prints "it runs" in the end.
func container(t *testing.T, image, dist, flags, script string) {
	t.Helper()
	// Where this test runs, limits may be lower than those that Podman asks for by default.
	args := []string{"run", "--rm", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "-v", dist + ":/dist:ro"}
	args = append(append(args, strings.Fields(flags)...), image, "sh", "-exc", script)
	if out := run(t, nil, "podman", args...); !strings.HasSuffix(out, "it runs\n") {
		t.Errorf("podman run %s %s prints\n%s", flags, image, out)
	}
}

// TestPackages installs what make package makes.
func TestPackages(t *testing.T) {
	podmantest.Need(t)
	for _, tool := range []string{"make", "mmdebstrap", "ruby"} {
		e2e.Require(t, tool)
	}
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := private.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	// One backend is enough for what is made of a release: TestRelease in test/ship has all of them.
	make := func(t *testing.T) string {
		dist := filepath.Join(t.TempDir(), "dist")
		run(t, []string{"DIST=" + dist, "KEY=" + key}, "make", "package", "VERSION="+version, "PLATFORMS=linux/"+runtime.GOARCH,
			"BACKENDS=bwrap landlock")
		return dist
	}
	dist := make(t)
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	t.Run("verified", func(t *testing.T) {
		run(t, nil, "sh", "-ec", `cd "$0" && sha256sum --check --strict SHA256SUMS`, dist)
		sums := read(filepath.Join(dist, "SHA256SUMS"))
		for _, file := range []string{name + ".tar.gz", name + ".oci.tar", name + ".cdx.json", "hutch_" + version + "_" + runtime.GOARCH + ".deb",
			"hutch.rb", "hutch-backend-bwrap_"} {
			if !strings.Contains(sums, "  "+file) {
				t.Errorf("no %s is in\n%s", file, sums)
			}
		}
		manifests, err := filepath.Glob(filepath.Join(dist, "*_manifest.json"))
		if err != nil || len(manifests) != 2 {
			t.Errorf("the manifests are %q, %v", manifests, err)
		}
		for _, signed := range append(manifests, filepath.Join(dist, "SHA256SUMS")) {
			if !minisign.Verify(public, []byte(read(signed)), []byte(read(signed+".minisig"))) {
				t.Errorf("the signature of %s is wrong", signed)
			}
		}
		formula := filepath.Join(dist, "hutch.rb")
		run(t, nil, "ruby", "-c", formula)
		hash, _, _ := strings.Cut(run(t, nil, "sha256sum", filepath.Join(dist, name+".tar.gz")), " ")
		if text := read(formula); !strings.Contains(text, `sha256 "`+hash+`"`) {
			t.Errorf("%s is not in\n%s", hash, text)
		}
	})

	t.Run("reproducible", func(t *testing.T) {
		t.Parallel()
		if diff := cmp.Diff(read(filepath.Join(dist, "SHA256SUMS")), read(filepath.Join(make(t), "SHA256SUMS"))); diff != "" {
			t.Errorf("made again (-first +second):\n%s", diff)
		}
	})

	page := read("../../docs/packages.md")
	for _, flags := range []string{asRoot, asUser} {
		if !strings.Contains(page, "podman run --rm "+flags+" ") {
			t.Errorf("docs/packages.md does not name %s", flags)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bases, err := filepath.Glob(filepath.Join(root, ".tools/*-"+runtime.GOARCH+".tar"))
	if err != nil || len(bases) == 0 {
		t.Fatalf("the base is missing: %v", err)
	}
	remove := func() { _ = exec.Command("podman", "rmi", "--force", debian, image, other).Run() }
	remove()
	t.Cleanup(remove)
	run(t, nil, "podman", "import", "--change=ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin", bases[0], debian)
	run(t, nil, "podman", "load", "--input", filepath.Join(dist, name+".oci.tar"))

	const (
		offline = " --network=none" // another network of a user's Podman needs /dev/net/tun
		runs    = "hutch --version; hutch run -q -- echo it runs"
		unpack  = "mkdir -p ~/.local; tar -xzf /dist/" + name + ".tar.gz --strip-components=1 -C ~/.local; " +
			"export PATH=~/.local/bin:$PATH; "
		ada = `install -d -o 1000 /home/ada; ada='setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/ada'; `
	)
	cases := map[string]struct{ image, flags, script string }{
		// apt brings what the package depends on.
		"deb": {debian, asRoot + " --network=host -e DEBIAN_FRONTEND=noninteractive", ada + `
			dpkg --purge bubblewrap
			if dpkg --install /dist/*.deb; then exit 1; fi
			dpkg --purge hutch
			apt-get update -qq
			apt-get install -qq -y --no-install-recommends /dist/*.deb
			test -s /usr/share/man/man1/hutch-run.1
			bash -n /usr/share/bash-completion/completions/hutch
			hutch run -q -- echo root runs
			$ada hutch run -q -- echo it runs`},
		"tarball in Debian": {debian, asRoot + offline, ada + "$ada sh -exc '" + unpack + runs + "'"},
		// As on Alpine: no program is GNU's, and no library is there but those of bwrap.
		"tarball in BusyBox": {podmantest.Bubblewrap(t), asUser + offline + " -e HOME=/tmp/home", unpack + runs},
		"image as root": {image, asRoot + offline, `
			git --version
			test -s /etc/ssl/certs/ca-certificates.crt
			test -s /usr/local/share/man/man1/hutch-run.1
			printf 'run "job" {\n  command = ["echo", "it runs"]\n}\n' >job.hcl
			hutch run -q --backend bwrap job.hcl`},
		"image as another user": {image, asUser + offline + " -e HOME=/tmp", runs},
	}
	if file := os.Getenv("HUTCH_TEST_ROOT"); file != "" { // such as Alpine's, in which bwrap is not installed
		run(t, nil, "podman", "import", "--change=ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin", file, other)
		cases["tarball in "+filepath.Base(file)] = struct{ image, flags, script string }{other, offline,
			unpack + "hutch run -q --backend landlock -- echo it runs"}
	}
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			container(t, c.image, dist, c.flags, c.script)
		})
	}
}
