package gitattack

import (
	"os/exec"
	"testing"
)

// TestAttacks runs the attacks without a sandbox, where each succeeds.
func TestAttacks(t *testing.T) {
	if Ran(Project(t)) {
		t.Fatal("a program ran without any attack")
	}
	for name, script := range Attacks {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", script)
			cmd.Dir = Project(t)
			if out, _ := cmd.CombinedOutput(); !Ran(cmd.Dir) {
				t.Fatalf("the attack does not work: %s", out)
			}
		})
	}
}
