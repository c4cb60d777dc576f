# One run block, many runs: for_each makes an instance of it for every language. They run side by side, share one
# backend process, and each line of their output carries the name of its run.
#
#   hutch run examples/matrix.hcl
#   hutch run examples/matrix.hcl 'sum["perl"]'
#
# needs: bwrap python3 node perl
# expect hutch: exit 0
# expect sum["python"]: stdout "the sum is 5050"
# expect sum["javascript"]: stdout "the sum is 5050"
# expect sum["shell"]: stdout "the sum is 5050"
# expect sum["perl"]: stdout "the sum is 5050"

locals {
  programs = {
    python     = { file = "sum.py", code = "print('the sum is', sum(range(1, 101)))\n" }
    javascript = { file = "sum.js", code = "let s = 0; for (let i = 1; i <= 100; i++) s += i; console.log('the sum is ' + s);\n" }
    shell      = { file = "sum.sh", code = "echo the sum is $((100 * 101 / 2))\n" }
    perl       = { file = "sum.pl", code = "my $s = 0; $s += $_ for 1..100; print \"the sum is $s\\n\";\n" }
  }
}

run "sum" {
  for_each = local.programs

  backend "bwrap" {}

  language   = each.key
  entrypoint = each.value.file

  # The name of a block is written out, never computed: a file whose name is a value comes from a dynamic block.
  dynamic "file" {
    for_each = { (each.value.file) = each.value.code }
    labels   = [file.key]
    content {
      content = file.value
    }
  }

  limits {
    timeout = "30s"
    memory  = "1GiB"
  }
  expect {
    stdout {
      contains = ["the sum is 5050"]
    }
  }
}
