// Package cycle lets a model work a specification with tools, inside of a sandbox and nowhere else.
//
// A cycle is a loop with visible states, each of which is in its record before it begins:
//
//	set-up      a persistent sandbox is made on the project, privately, and prepared
//	coding      the model works with the tools of host/agent/tools, until it says that it is done and the check, a
//	            command of the user's, agrees; until it gives up; or until a bound is reached
//	sync-back   what changed is listed, and brought back through a review where the user wants that
//	tear-down   the sandbox is removed, unless something in it is still to be reviewed
//
// Whatever happens in coding, an interrupt and an error of the model included, the last two follow. A host that dies
// leaves a record from which [Resume] goes on: the conversation is in it, the sandbox is still there.
//
// Nothing that the model says is run or written on this host. Its calls go to tools that work in the sandbox; a call
// that cannot be done is answered with an error that the model can act on, whatever is wrong with it.
package cycle
