// Package inside reads and changes the files of a sandbox that runs on this host, through its root directory as its own
// processes see it. Nothing that a command leaves there leads out: [os.Root] follows no link beyond it.
package inside
