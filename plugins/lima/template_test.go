package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestTemplate renders instance files and compares them with what a person has read.
func TestTemplate(t *testing.T) {
	def := Config{Instance: "hutch", CPUs: 2, Memory: 4 << 30, Disk: 20 << 30, HostResolver: true, StartTimeout: 10 * time.Minute}
	own := def
	own.Image, own.Digest = "/images/guest.img", "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	own.Kernel, own.KernelArgs, own.Initrd = "/images/vmlinuz", "root=/dev/vda rw console=ttyS0", "/images/initrd.img"
	own.HostResolver, own.MountType, own.VMType, own.CPUs, own.Memory = false, "9p", "qemu", 8, 1<<30+1
	scripts := def
	scripts.Provision = []string{"#!/bin/sh\nset -e\napt-get install -y git\n", "echo 'a: b # c' \"d\" $HOME\n\ttabbed\n", "no newline: at the end"}
	for name, c := range map[string]struct {
		cfg      Config
		exchange exchangeOf
	}{
		"default":   {def, exchangeOf{"/home/me/.local/share/hutch/exchange", "/exchange"}},
		"own-image": {own, exchangeOf{"/data/with space: and #/exchange", "/exchange"}},
		"dedicated": {def, exchangeOf{"/h/exchange/abc", "/exchange/abc"}},
		"provision": {scripts, exchangeOf{"/h/exchange", "/exchange"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render(&c.cfg, c.exchange)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "template", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got (go test ./plugins/lima -run TestTemplate -update rewrites it):\n%s", diff)
			}
		})
	}
}
