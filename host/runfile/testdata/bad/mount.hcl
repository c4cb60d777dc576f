run "mounts" {
  command = ["ls", "/data"]
  mount "data" { source = "." }
  mount "/data" { source = "nowhere" }
  mount "/a" {
    source = "."
    mode   = "rw"
  }
  mount "/data" { source = "." }
  mount "/b" {}
}
