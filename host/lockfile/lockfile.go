// Package lockfile reads and writes .hutch.lock.hcl, the file that says exactly which backends a project's runs use.
//
// It lies beside the run files that it is for and belongs into version control. `hutch init` writes it; `hutch run`
// reads it and uses what it names or nothing. It is the same on every platform, because it has the hashes of all of
// them:
//
//	backend "acme" {
//	  source     = "registry.example.com/acme/hutch-backend-acme"
//	  constraint = "~> 1.2"
//	  version    = "1.2.3"
//	  protocols  = [1]
//	  manifest   = "0f3a…"
//
//	  platform "linux/amd64" {
//	    archive_sha256 = "4be1…"
//	    binary_sha256  = "77ab…"
//	    beside_sha256  = "e3b0…"
//	  }
//	}
//
// A lock file comes with a project that may be hostile. It names hashes and no paths: all it can do is to choose among
// what this user has installed.
package lockfile

import (
	"slices"
	"strings"
)

// Name is the name of the file.
const Name = ".hutch.lock.hcl"

// maxSize bounds the file, in bytes.
const maxSize = 1 << 20

// File is what a lock file holds.
type File struct {
	Backends []Backend // by name
}

// Backend is one locked backend.
type Backend struct {
	Name       string
	Source     string // as in the run file
	Constraint string // that the version was chosen by, "" for any
	Version    string
	Protocols  []int  // major versions of the contract, ascending
	Manifest   string // SHA-256 of the release's manifest, "" when it has none
	SignedBy   string // ID of the key that signed the manifest, "" when none did
	Platforms  []Platform
}

// Platform is a backend for one platform.
type Platform struct {
	Name    string // GOOS/GOARCH
	Archive string // SHA-256 in hex
	Binary  string // SHA-256 in hex of hutch-backend-NAME
	Beside  string // backend.BesideSHA256 of what lies beside it, "" when its manifest does not say
}

// Find returns the lock of a backend, nil when there is none. A nil file has none.
func (f *File) Find(name string) *Backend {
	if f == nil {
		return nil
	}
	for i := range f.Backends {
		if f.Backends[i].Name == name {
			return &f.Backends[i]
		}
	}
	return nil
}

// Set puts a lock in the place of an older one of the same name.
func (f *File) Set(b Backend) {
	f.Remove(b.Name)
	f.Backends = append(f.Backends, b)
	slices.SortFunc(f.Backends, func(a, b Backend) int { return strings.Compare(a.Name, b.Name) })
}

// Remove takes a lock away, if there is one.
func (f *File) Remove(name string) {
	f.Backends = slices.DeleteFunc(f.Backends, func(b Backend) bool { return b.Name == name })
}

// For finds what is locked for a platform.
func (b *Backend) For(platform string) (Platform, bool) {
	for _, p := range b.Platforms {
		if p.Name == platform {
			return p, true
		}
	}
	return Platform{}, false
}
