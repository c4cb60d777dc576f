// Package backendtest is the conformance suite: one table of named checks that
// every backend has to pass for what it claims.
//
// There are two doors to the same table. A backend written in Go calls [Run]
// from a test; it serves the backend over real gRPC inside the test process:
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, backendtest.Suite{
//			New:    func() sdk.Backend { return newBackend() },
//			Config: map[string]any{"image": "alpine"},
//		})
//	}
//
// A compiled plugin in any language is tested by `hutch backend test PATH`,
// which gives a [Runner] a [Target] that starts processes. Only there do the
// checks run which kill, stop or abandon the plugin's process.
//
// A check is skipped when the backend does not claim what the check is about, when
// its Plan says that this machine lacks what a limit or the network needs, or when
// the door has no process to kill. Every skip is reported with its reason. What a
// backend claims is what its Describe says, whatever the machine; what its Plan
// says cannot be had here, its Create has to refuse (plan/refusals).
//
// Inside the sandbox the checks use a POSIX shell and coreutils, nothing else.
package backendtest
