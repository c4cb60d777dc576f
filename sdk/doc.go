// Package sdk is all that the author of a hutch backend imports.
//
// A backend makes sandboxes of one kind: namespaces, containers, virtual
// machines. It is a separate program named hutch-backend-NAME whose main is
//
//	func main() { sdk.Serve(&backend{}) }
//
// where backend implements [Backend]: four methods, plus Exec on the [Sandbox]
// it returns. Whatever else a backend can do it says by implementing one of the
// optional interfaces ([Planner], [Preparer], [Attacher], [Lister], [Inspector],
// [Putter], [Getter], [ChangeLister], [Resetter], [Stopper]); the SDK derives the list of
// capabilities from them, so a capability that is claimed is a method that exists.
//
// # Life of a plugin process
//
// The host starts one process per backend and serves all its runs with it, many
// at a time. Calls for different sandboxes come concurrently; for one sandbox
// only Exec, Get and Put do. The process must keep no durable state but below
// [CreateRequest.StateDir]. When the host dies the SDK cancels every context,
// destroys the sandboxes that are not to be kept, and exits.
//
// # Truth
//
// A program that ends with a non-zero code is a result ([Exit]), never an error.
// A limit that cannot be held is an [Error] with [ReasonLimit], never a run with
// a weaker sandbox.
package sdk
