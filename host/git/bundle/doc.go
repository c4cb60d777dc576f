// Package bundle makes git bundles for sandboxes and takes apart those that come back.
//
// What goes in is all of a branch, what is new on top of a commit that the sandbox has, or the end of its history:
// [Part].
//
// A bundle from a sandbox is hostile. [Check] never lets git see more of it than the pack, and that only after this
// package has read the pack itself: header and refs, the number of objects, the size of each and of all together, what
// every delta grows to, and the checksum. What git then makes of it lies in a private repository that sees the user's
// objects and nothing else: no configuration, no hooks, no refs but the commit that was sent. There every object is
// checked while the pack is indexed (which needs no version of git that honours fetch.fsckObjects for bundles), the one
// expected ref is taken, its commits are counted, and every path that any of them adds or changes is judged. Only what
// passed all of it can be fetched from there, and what is fetched is that one commit and what it needs.
package bundle
