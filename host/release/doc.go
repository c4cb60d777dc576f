// Package release is the form in which a backend is given away: archives, one for each platform, and one manifest that
// names them all with their hashes.
//
// The files of one release lie side by side, in a directory, on a web server or in a registry:
//
//	hutch-backend-acme_1.2.0_manifest.json           the manifest
//	hutch-backend-acme_1.2.0_manifest.json.minisig   its signature by minisign, if there is one
//	hutch-backend-acme_1.2.0_linux_amd64.tar.gz      the archives, .tar.gz or .zip
//	hutch-backend-acme_1.2.0_linux_arm64.tar.gz
//
// An archive holds hutch-backend-acme, and beside it what that needs. The manifest has the SHA-256 of every archive and
// of the program in it, so anyone who has checked the manifest can check the rest, and a lock file can name all
// platforms without any of the archives having been fetched. A signature of the manifest is a signature of the release.
package release
