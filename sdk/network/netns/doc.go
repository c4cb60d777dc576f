// Package netns makes the sandbox's end of a filtered network: in a network namespace that has nothing but a loopback,
// every TCP connection and every lookup of a name arrives at listeners that a process outside of it serves, with
// package gate; all else is rejected at once. The namespace has no other way out, so a mistake in it opens none.
//
// Commands must not have capabilities over the namespace. They have none when it belongs to a user namespace above
// their own.
package netns
