# JavaScript on Node with a package from the npm registry. The package is installed in a sandbox of its own, which has
# the network and sees neither the code nor any workspace; the program then runs without the network. A second run
# takes the package from the cache.
#
#   hutch run examples/javascript.hcl
#
# needs: bwrap node npm registry
# expect hutch: exit 0
# expect javascript: stdout "2 days is 172800000 ms"
# expect javascript: stdout "90000 ms is 2 minutes"

run "javascript" {
  backend "bwrap" {}

  file "main.js" { source = "javascript/main.js" }
  file "lib/say.js" { source = "javascript/lib/say.js" }

  entrypoint   = "main.js"
  dependencies = ["ms@2.1.3"]

  limits {
    timeout = "2m"
    pids    = 64
  }
}
