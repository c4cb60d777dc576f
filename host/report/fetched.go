package report

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/termsafe"
)

// Fetched lists the dependencies that a run had, one a line: name, version, digest.
func Fetched(w io.Writer, r *result.Result) error {
	for _, d := range r.Dependencies {
		for _, p := range d.Fetched {
			line := strings.TrimRight(p.Name+" "+p.Version+" "+p.Digest, " ")
			if _, err := fmt.Fprintln(w, termsafe.Line(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

// ecosystems are the types of package URLs, see https://github.com/package-url/purl-spec.
var ecosystems = map[string]string{"python": "pypi", "javascript": "npm"}

// Materials writes the dependencies that a run had as a bill of materials: CycloneDX 1.6, JSON.
func Materials(w io.Writer, r *result.Result) error {
	list := []cdx.Component{}
	for _, d := range r.Dependencies {
		for _, p := range d.Fetched {
			name := strings.ReplaceAll(p.Name, "@", "%40")
			url := fmt.Sprintf("pkg:%s/%s@%s", ecosystems[d.Language], name, strings.ReplaceAll(p.Version, "+", "%2B"))
			c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: p.Name, Version: p.Version, PackageURL: url}
			kind, text, _ := strings.Cut(p.Digest, "-")
			switch sum, err := base64.StdEncoding.DecodeString(text); {
			case kind == "sha512" && err == nil:
				c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA512, Value: hex.EncodeToString(sum)}}
			case p.Digest != "": // not of the archive
				c.Properties = &[]cdx.Property{{Name: "hutch:record", Value: p.Digest}}
			}
			list = append(list, c)
		}
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = ""
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{Type: cdx.ComponentTypeApplication, Name: r.Name, Version: r.ID},
	}
	bom.Components = &list
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}
