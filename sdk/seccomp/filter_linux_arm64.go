package seccomp

import _ "embed"

//go:embed filter_arm64.bpf
var program []byte

const scmpArch = "SCMP_ARCH_AARCH64"
