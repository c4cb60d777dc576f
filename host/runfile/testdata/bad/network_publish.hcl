run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    publish = ["3000", "8080:3000:1"]
  }
}

run "same" {
  command = ["true"]
  network { publish = ["3000", "3000:80"] }
}

run "type" {
  command = ["true"]
  network { publish = 3000 }
}
