// Package e2btest is a local server that speaks E2B's protocol, so that the backend can be tested, and tried, offline.
//
//	s, err := e2btest.Start(ctx, e2btest.Options{})
//	cmd.Env = append(os.Environ(), s.Env()...) // E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL
//
// One address serves both halves of E2B: the control plane (sandboxes are made, listed, paused and ended there) and the
// edge, which passes requests on to the daemon inside a sandbox. Requests belong to the edge when they carry the header
// E2b-Sandbox-Id or come for a host named PORT-SANDBOX.DOMAIN.
//
// Each sandbox is a bubblewrap: user, process, mount, network, IPC and UTS namespaces, a root directory with the
// machine's /usr in it, read-only, and the daemon, which is this program started again. Any program that imports this
// package can be that daemon, by an init function. Edge and daemon speak HTTP/2 over one socket pair. A sandbox ends
// when it is ended, when it times out, and when the server is gone, however suddenly.
//
// The official JavaScript SDK drives the server in test/e2bsdk, unmodified. The tests here that are about the daemon
// alone take E2B's own envd as well: HUTCH_TEST_ENVD is the URL of one, whose /home/user, /root and /tmp they empty.
// They pass with envd 0.6.13.
//
// # What differs from E2B
//
// All users of a sandbox share one id of the machine. user and root see themselves as such, but user may change what
// belongs to root. The daemon works as user: files belong to user, and what user may not read the daemon cannot read.
// There is no sudo.
//
// A sandbox has no network but its own loopback, unless Options.HostNetwork is set. Rules for traffic (network) are
// ignored.
//
// A pause that keeps memory stops the processes (SIGSTOP), one that does not ends them; files stay either way. Limits
// of CPU, memory and disk are reported and not enforced.
//
// The server has what the backend needs: the life of sandboxes, commands, and whole files. Of files it takes and gives
// the bytes as they are (application/octet-stream): no forms, compression, metadata or signed URLs. The service
// filesystem.Filesystem (list, stat, move, watch) and the selection of processes by tag have the RPC code unimplemented.
// Requests to other ports of a sandbox, and calls of the control plane for anything else, such as metrics, snapshots,
// volumes, template builds and logs, answer 501; so do calls that newer ones replace (GET /sandboxes, refreshes, resume).
// autoResume is refused, and so is allowPublicTraffic false.
//
// The walls are those of an ordinary bubblewrap without a filter for system calls, and what root starts is root's on
// the machine: hutch-e2b-server refuses root unless -allow-root is given. That is enough for tests and trials with your
// own code; code that is not trusted belongs into hutch's bwrap backend.
package e2btest
