# Programs that a model wrote for one question, the tenth Fibonacci number: each file of a directory is a run, with its
# own sandbox and limits. docs/tasks.md evaluates them, and 200 work alike.
#
#   hutch run examples/snippets.hcl -j 4 --junit results.xml
#
# needs: bwrap python3
# expect hutch: exit 124
# expect snippet["loop.py"]: stdout "55"
# expect snippet["recursive.py"]: stdout "55"
# expect snippet["short.py"]: stdout "34"
# expect snippet["endless.py"]: cause timeout

run "snippet" {
  for_each = fileset("snippets", "*.py")

  backend "bwrap" {}

  file "main.py" { source = "snippets/${each.key}" }
  entrypoint = "main.py"

  limits {
    timeout = "3s"
    memory  = "256MiB"
  }
  expect {
    stdout {
      contains = ["55"]
    }
  }
}
