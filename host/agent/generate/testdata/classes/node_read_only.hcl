# want: policy main.js:1
run "r" {
  backend "bwrap" {}
  file "main.js" {
    content = <<-EOT
      require("fs").writeFileSync(process.env.HUTCH_INPUT + "/x", "");
    EOT
  }
  entrypoint = "main.js"
}
