// Command sbom prints what a Go program is made of, from what the linker wrote into it, as CycloneDX JSON.
package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(path, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: filepath.Base(path), Version: version,
		BOMRef: "main", PackageURL: "pkg:golang/" + info.Path,
	}}
	components := []cdx.Component{{
		Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: info.GoVersion, BOMRef: "std", PackageURL: "pkg:golang/std@" + info.GoVersion,
	}}
	refs := []string{"std"}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		url := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, BOMRef: url, PackageURL: url})
		refs = append(refs, url)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: "main", Dependencies: &refs}}
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}
