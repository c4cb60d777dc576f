package seccomp

import _ "embed"

//go:embed filter_amd64.bpf
var program []byte

//go:embed shared_amd64.bpf
var shared []byte

const scmpArch = "SCMP_ARCH_X86_64"
