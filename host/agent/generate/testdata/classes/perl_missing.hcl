# want: missing_dependency main.pl:1
run "r" {
  backend "bwrap" {}
  file "main.pl" {
    content = <<-EOT
      use Surely::No::Such;
    EOT
  }
  entrypoint = "main.pl"
}
