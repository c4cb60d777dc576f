// Package install brings backends onto this machine: it finds a release at its source, checks it against its manifest,
// its signature and the lock file, and unpacks it into its own directory.
//
// It is the only part of hutch that uses the network by itself, and only when `hutch init` or `hutch backend install`
// asks for it. Nothing that it fetches is executed by it.
//
// # What is trusted
//
// A source is not: manifests, archives, signatures, redirects and sizes may be hostile. The first fetch of a release
// takes the publisher's word for it unless a key is trusted for that source; from then on the lock file holds hashes,
// and whatever differs from them is refused. An archive is unpacked as a tree from a sandbox is, by package tree.
//
// # Where it goes
//
//	DIR/NAME/VERSION/OS_ARCH/HASH/hutch-backend-NAME
//
// HASH is the beginning of the program's SHA-256, so that two sources with one version number do not share a place, and
// what is there never changes. A directory is renamed into place when it is whole.
package install
