package seccomp

import _ "embed"

//go:embed filter_amd64.bpf
var program []byte

const scmpArch = "SCMP_ARCH_X86_64"
