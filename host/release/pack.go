package release

import (
	"archive/tar"

	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/hutch-run/hutch/host/backend"
)

// Build is a program built for one platform, and what goes into the archive with it.
type Build struct {
	Platform string   // "" to look into the program
	Binary   string   // path
	Extra    []string // paths of regular files that lie beside it in the archive, by their own names
}

// Pack writes a release into a directory: archives and a manifest, from what was built. The same builds give the same
// bytes. The manifest comes last, so a release that is there is whole; one that is there already is not replaced.
func Pack(dir, name, version string, protocols []int, builds []Build) (*Manifest, error) {
	m := &Manifest{Name: name, Version: version, Protocols: protocols}
	for _, err := range []error{backend.CheckName(name), CheckVersion(version)} {
		if err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, ManifestName(name, version))
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s is there already: a version is released once", path)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, b := range builds {
		if b.Platform == "" {
			var err error
			if b.Platform, err = PlatformOf(b.Binary); err != nil {
				return nil, err
			}
		}
		if err := CheckPlatform(b.Platform); err != nil {
			return nil, err
		}
		if _, twice := m.For(b.Platform); twice {
			return nil, fmt.Errorf("%s is a second program for %s", b.Binary, b.Platform)
		}
		a, err := pack(dir, name, version, b)
		if err != nil {
			return nil, err
		}
		m.Archives = append(m.Archives, a)
	}
	raw, err := m.Encode()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(raw)
	return m, errors.Join(err, f.Close())
}

// pack writes the archive of one platform.
func pack(dir, name, version string, b Build) (a Archive, err error) {
	a = Archive{Platform: b.Platform, File: ArchiveName(name, version, b.Platform) + ".tar.gz"}
	f, err := os.OpenFile(filepath.Join(dir, a.File), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, sum), gzip.DefaultCompression)
	if err != nil {
		return a, err
	}
	t := tar.NewWriter(z)
	program := backend.Prefix + name
	if a.BinarySHA256, err = add(t, program, b.Binary, 0o755); err != nil {
		return a, err
	}
	extra := slices.Clone(b.Extra)
	slices.SortFunc(extra, func(x, y string) int { return strings.Compare(filepath.Base(x), filepath.Base(y)) })
	beside := backend.NewBesideHash()
	for _, path := range extra {
		if base := filepath.Base(path); base == program || strings.HasPrefix(base, ".") {
			return a, fmt.Errorf("%s cannot be in an archive beside the program: its name is taken", path)
		}
		mode := int64(0o644)
		if st, err := os.Stat(path); err == nil && st.Mode()&0o100 != 0 {
			mode = 0o755
		}
		sum, err := add(t, filepath.Base(path), path, mode)
		if err != nil {
			return a, err
		}
		beside.Add(filepath.Base(path), backend.BesideKind(mode == 0o755), sum)
	}
	a.BesideSHA256 = beside.Sum()
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return a, err
	}
	st, err := f.Stat()
	if err != nil {
		return a, err
	}
	if a.Size = st.Size(); a.Size > MaxArchive {
		return a, fmt.Errorf("%s is %d bytes, and at most %d can be installed", a.File, a.Size, MaxArchive)
	}
	a.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return a, nil
}

// add puts a file into an archive and returns its SHA-256. Owner and times are left out, so that equal files give equal
// bytes.
func add(t *tar.Writer, name, path string, mode int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: st.Size(), Mode: mode,
		Format: tar.FormatUSTAR}); err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(t, sum), f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// PlatformOf finds out what platform a program was built for: one in Go says it, of others the file format does.
func PlatformOf(path string) (string, error) {
	if info, err := buildinfo.ReadFile(path); err == nil {
		set := map[string]string{}
		for _, s := range info.Settings {
			set[s.Key] = s.Value
		}
		if set["GOOS"] != "" && set["GOARCH"] != "" {
			return set["GOOS"] + "/" + set["GOARCH"], nil
		}
	}
	if f, err := elf.Open(path); err == nil {
		defer f.Close()
		arch := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_RISCV: "riscv64",
			elf.EM_S390: "s390x"}[f.Machine]
		if arch != "" {
			return "linux/" + arch, nil
		}
	}
	if f, err := macho.Open(path); err == nil {
		defer f.Close()
		if arch := map[macho.Cpu]string{macho.CpuAmd64: "amd64", macho.CpuArm64: "arm64"}[f.Cpu]; arch != "" {
			return "darwin/" + arch, nil
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s does not tell which platform it is for: write OS/ARCH=%s", path, path)
}
