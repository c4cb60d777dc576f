package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// TestObserve has programs name files in every way that the recorder knows, from shells to Python's own calls.
func TestObserve(t *testing.T) {
	place := "/var/lib" // and not /tmp, which no mount can show
	if os.Getuid() != 0 {
		place, _ = os.UserHomeDir()
	}
	dir, err := os.MkdirTemp(place, "hutch-observe-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"mounted/a": "a\n", "mounted/b": "b\n", "mounted/never": "", "vain/x": "x", "vain/y": "y"})
	if err := os.Symlink(filepath.Join(dir, "vain"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := newSandbox(t, sdk.Spec{Network: sdk.NetworkFull, Mounts: []sdk.Mount{{Source: filepath.Join(dir, "mounted"), Target: "/m", ReadOnly: true}}})
	r := run(t, t.Context(), s, &sdk.Command{Observe: true, Argv: []string{"/bin/sh", "-c", `cd /m && cat a; (echo new > b) 2>/dev/null; ln -s /m/a /tmp/a; cat /tmp/a
		D=` + dir + `; test -e $D/vain/x; cat $D/link/y; mkdir $D/vain/made; cat $D/nothing
		/usr/bin/python3 -c 'import os
try: os.open("vain/x", os.O_RDWR, dir_fd=os.open("` + dir + `", os.O_PATH))
except OSError: pass'`}})
	want := []sdk.FileUse{
		{Path: dir}, {Path: dir + "/vain/made", Write: true}, {Path: dir + "/vain/x"}, {Path: dir + "/vain/y"},
		{Path: "/m", Found: true}, {Path: "/m/a", Found: true}, {Path: "/m/b", Found: true, Write: true},
	}
	slices.SortFunc(want, func(a, b sdk.FileUse) int { return strings.Compare(a.Path, b.Path) })
	elsewhere := func(f sdk.FileUse) bool { return strings.HasPrefix(f.Path, "/etc/") } // Python looks there
	if diff := cmp.Diff(want, slices.DeleteFunc(r.Files, elsewhere)); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, r.err)
	}
	if again := sh(t, s, "cat /m/a"); again.out != "a\n" || again.Files != nil {
		t.Errorf("a command that is not observed: %q %v", again.out, again.Files)
	}
	gone := run(t, t.Context(), s, &sdk.Command{Observe: true, Argv: []string{dir + "/vain/program"}})
	if !gone.NotStarted || len(gone.Files) != 0 {
		t.Errorf("a program that is nowhere: %+v", gone.Exit)
	}
	gone = run(t, t.Context(), s, &sdk.Command{Observe: true, Argv: []string{dir + "/vain/x"}})
	if diff := cmp.Diff([]sdk.FileUse{{Path: dir + "/vain/x"}}, gone.Files); !gone.NotStarted || diff != "" {
		t.Errorf("a program that only the host has: %+v\n%s", gone.Exit, diff)
	}
}
