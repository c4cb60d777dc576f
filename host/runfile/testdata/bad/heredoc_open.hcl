run "a" {
  command = ["cat"]
  stdin   = <<END
text
}
