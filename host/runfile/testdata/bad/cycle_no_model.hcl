cycle "a" {}
