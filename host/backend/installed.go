package backend

import (
	"path/filepath"
	"runtime"
	"strings"
)

// Platform is the one that this host runs on, as releases call it: linux/amd64.
const Platform = runtime.GOOS + "/" + runtime.GOARCH

// InstalledPath is where the binary of an installed release lies below dir. The beginning of its SHA-256, in hex, is
// part of it, so that two sources with one version number do not share a place.
func InstalledPath(dir, name, version, platform, sha256 string) string {
	return filepath.Join(dir, name, version, strings.ReplaceAll(platform, "/", "_"), sha256[:16], Prefix+name)
}
