# A plan is worked through on a branch in a sandbox, and the commits come back. hutch push sends the branch that is checked
# out with the plan, runs the command in a clone of it, and hutch pull moves the branch forward by what was committed there. A
# coding agent takes the place of the script: HUTCH_INSTRUCTIONS says how to work and to hand in.
#
#   hutch push examples/plan.hcl PLAN.md && hutch pull NAME
#
# Without hutch push, as under hutch run, there is no plan, and the script says so.
#
# needs: bwrap git
# expect hutch: exit 0
# expect agent: cause exited
# expect agent: stdout "There is no plan"

run "agent" {
  backend "bwrap" {}

  command = ["sh", "-c", <<-EOT
    set -e
    if [ -z "$HUTCH_PLAN" ]; then
      echo "There is no plan: hutch push sends one."
      exit
    fi
    # Each line of the plan that begins with "- " is a file to write, and becomes a commit.
    sed -n 's/^- //p' "$HUTCH_PLAN" | while read -r name; do
      echo "written in $(basename "$HUTCH_CLONE")" > "$name"
      git add "$name"
      git commit -q -m "add $name"
      echo "did: $name"
    done
  EOT
  ]

  home ".agent/instructions.md" {
    builtin = "executing-plans-in-sandbox.md"
  }

  limits {
    timeout = "5m"
    memory  = "256MiB"
  }
}
