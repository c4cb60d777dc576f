package table

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Arches returns the architectures that programs are made for, with the numbers of their calls as golang.org/x/sys has
// them. It needs the go command.
func Arches() ([]*Arch, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		return nil, fmt.Errorf("find golang.org/x/sys: %w", err)
	}
	arches := []*Arch{
		{Name: "amd64", Audit: 0xc000003e, SCMP: "SCMP_ARCH_X86_64"},
		{Name: "arm64", Audit: 0xc00000b7, SCMP: "SCMP_ARCH_AARCH64"},
	}
	constant := regexp.MustCompile(`SYS_(\w+)\s+= (\d+)`)
	for _, a := range arches {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "unix", "zsysnum_linux_"+a.Name+".go"))
		if err != nil {
			return nil, err
		}
		a.Numbers = map[string]int{}
		for _, m := range constant.FindAllStringSubmatch(string(source), -1) {
			name := strings.ToLower(m[1])
			if name == "fstatat" { // arm64's header has the number under this name, the kernel's call has the other one
				name = "newfstatat"
			}
			if a.Numbers[name], err = strconv.Atoi(m[2]); err != nil {
				return nil, err
			}
		}
	}
	return arches, nil
}
