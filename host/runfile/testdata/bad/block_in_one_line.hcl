run "a" { command = ["true"]
}
