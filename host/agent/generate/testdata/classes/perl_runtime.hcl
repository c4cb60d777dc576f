# want: runtime main.pl:2
run "r" {
  backend "bwrap" {}
  file "main.pl" {
    content = <<-EOT
      my $x = 0;
      die "no data" if !$x;
    EOT
  }
  entrypoint = "main.pl"
}
