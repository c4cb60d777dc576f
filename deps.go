//go:build deps

// Package hutch pins the libraries that the parts of the project agreed on while they are being written.
package hutch

import (
	_ "github.com/adrg/xdg"
	_ "github.com/alecthomas/kong"
	_ "github.com/alecthomas/mango-kong"
	_ "github.com/bmatcuk/doublestar/v4"
	_ "github.com/creack/pty"
	_ "github.com/dustin/go-humanize"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/hashicorp/go-cty-funcs/filesystem"
	_ "github.com/hashicorp/go-hclog"
	_ "github.com/hashicorp/go-plugin"
	_ "github.com/hashicorp/go-version"
	_ "github.com/hashicorp/hcl/v2/hclsimple"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/oklog/ulid/v2"
	_ "github.com/pmezard/go-difflib/difflib"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/zclconf/go-cty-yaml"
	_ "github.com/zclconf/go-cty/cty"
	_ "golang.org/x/net/bpf"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "golang.org/x/text/unicode/norm"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
)
