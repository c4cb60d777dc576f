# want: syntax main.pl:3
run "r" {
  backend "bwrap" {}
  file "main.pl" {
    content = <<-EOT
      use strict;
      my $x = 1;
      if ($x { print 1 }
    EOT
  }
  entrypoint = "main.pl"
}
