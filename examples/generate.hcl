# A model writes a program, sees what went wrong, and mends it. The model is a script of answers, so that this needs no key
# and no network; everything else is real: the first answer fails in the sandbox, the second one works.
#
#   hutch generate examples/generate.hcl
#
# For a real model, replace the model block: provider "openai" (any server that speaks its protocol, local ones too) or "anthropic".
#
# command: generate
# needs: bwrap python3
# expect hutch: exit 0
# expect report attempt 1: exit 1
# expect report attempt 1: stderr "KeyError: 'price'"
# expect report attempt 2: exit 0
# expect report attempt 2: stdout "3 products"
# expect report attempt 2: output totals.json
model "demo" {
  provider = "scripted"
  script   = "generate/answers.txtar"
}

generate "report" {
  model    = "demo"
  task     = file("generate/task.md")
  language = "python"
  attempts = 3

  backend "bwrap" {}

  file "products.csv" { source = "generate/products.csv" }

  limits {
    timeout = "30s"
  }

  expect {
    outputs = ["totals.json"]
  }
}
