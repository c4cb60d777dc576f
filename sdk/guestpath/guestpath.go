// Package guestpath is the one place that decides where a sandbox shows its workspace, input and output. It depends on
// nothing, so that programs inside sandboxes can use it too.
package guestpath

// Workspace is the directory of the workspace.
const Workspace = "/workspace"

// Input returns the directory of the run's input. Beside a project, which is a workspace made from a host directory, it
// lies outside of the workspace: a project may have an input directory itself.
func Input(project bool) string { return under(project) + "/input" }

// Output returns the directory of the run's output, by the same rule as Input.
func Output(project bool) string { return under(project) + "/output" }

func under(project bool) string {
	if project {
		return ""
	}
	return Workspace
}
