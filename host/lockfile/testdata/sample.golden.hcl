# Written by "hutch init", which also changes it: "hutch init -upgrade" takes newer versions.
# It belongs into version control. "hutch run" uses exactly the backends that it names.

backend "acme" {
  source     = "registry.example.com/acme/hutch-backend-acme"
  constraint = "~> 1.2, != 1.2.1"
  version    = "1.2.3"
  protocols  = [1, 2]
  manifest   = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
  signed_by  = "0123456789ABCDEF"

  platform "darwin/arm64" {
    archive_sha256 = "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"
    binary_sha256  = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"
  }

  platform "linux/amd64" {
    archive_sha256 = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
    binary_sha256  = "0000000000000000000000000000000000000000000000000000000000000000"
    beside_sha256  = "4444444444444444444444444444444444444444444444444444444444444444"
  }

  platform "linux/arm64" {
    archive_sha256 = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
    binary_sha256  = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
    beside_sha256  = "3333333333333333333333333333333333333333333333333333333333333333"
  }
}

backend "zebra" {
  source    = "./dist"
  version   = "0.9.0-rc.1"
  protocols = [1]

  platform "linux/amd64" {
    archive_sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
    binary_sha256  = "2222222222222222222222222222222222222222222222222222222222222222"
  }
}
