# A model works a specification in a sandbox: it reads the project, changes it, runs its tests. This one answers from a file,
# so that you need no key and no network; put your own provider and model into the model block.
#
#   hutch cycle examples/cycle/cycle.hcl --id 1
#
# The specification is project/dev_documents/CYCLE1/SPEC.md. Nothing of the project is changed until you say so:
# hutch diff and hutch apply with the sandbox that it names, or --apply=on-success.

model "scripted" {
  provider = "scripted"
  script   = "answers.txtar"

  budget {
    turns = 20
    time  = "10m"
  }
}

cycle "words" {
  backend "bwrap" {}

  workspace {
    source = "project"
  }

  env   = { PYTHONDONTWRITEBYTECODE = "1" }
  check = ["python3", "-m", "unittest", "-q"]

  limits {
    timeout = "1m"
    pids    = 64
  }
}
