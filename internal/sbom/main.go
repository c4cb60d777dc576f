// Command sbom writes the bill of materials of Go programs that are given away together, in CycloneDX JSON, from what
// the compiler noted in them. The same programs give the same bytes.
//
//	sbom NAME VERSION PROGRAM…
package main

import (
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom NAME VERSION PROGRAM…")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(name, version string, programs []string) error {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{Type: cdx.ComponentTypeApplication, Name: name,
		Version: version, BOMRef: "main"}}
	components := map[string]cdx.Component{}
	var dependencies []cdx.Dependency
	var all []string
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		file := filepath.Base(path)
		if len(programs) == 1 {
			bom.Metadata.Component.PackageURL = "pkg:golang/" + info.Path
		} else {
			components[file] = cdx.Component{Type: cdx.ComponentTypeApplication, Name: file, Version: version, BOMRef: file,
				PackageURL: "pkg:golang/" + info.Path}
			all = append(all, file)
		}
		refs := []string{"std"}
		components["std"] = cdx.Component{Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: info.GoVersion,
			BOMRef: "std", PackageURL: "pkg:golang/std@" + info.GoVersion}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			url := "pkg:golang/" + m.Path + "@" + m.Version
			components[url] = cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, BOMRef: url,
				PackageURL: url}
			refs = append(refs, url)
		}
		if len(programs) == 1 {
			all = refs
		} else {
			dependencies = append(dependencies, cdx.Dependency{Ref: file, Dependencies: &refs})
		}
	}
	var list []cdx.Component
	for _, ref := range slices.Sorted(maps.Keys(components)) {
		list = append(list, components[ref])
	}
	bom.Components = &list
	dependencies = append([]cdx.Dependency{{Ref: "main", Dependencies: &all}}, dependencies...)
	bom.Dependencies = &dependencies
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}
