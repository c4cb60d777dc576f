package seccomp

import _ "embed"

//go:embed filter_arm64.bpf
var program []byte

//go:embed shared_arm64.bpf
var shared []byte

const scmpArch = "SCMP_ARCH_AARCH64"
