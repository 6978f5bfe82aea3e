package image

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// Bill returns the bill of materials of a Go program in CycloneDX's JSON: the modules that the linker recorded in it.
// The same program yields the same bill.
func Bill(path, name, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the modules of %s: %w", path, err)
	}
	sum, err := checksum(path)
	if err != nil {
		return nil, err
	}
	main := cdx.Component{BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		PackageURL: "pkg:golang/" + info.Main.Path + "@" + version,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}},
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}}
	goVersion := cdx.Component{BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		PackageURL: "pkg:golang/std@" + info.GoVersion}
	components := []cdx.Component{goVersion}
	refs := []string{goVersion.BOMRef}
	for _, module := range info.Deps {
		c := component(module)
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceOID, sum).URN()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: name, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("writing the bill of materials of %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// component describes a module or, if another module replaces it, the replacement. It does not name a folder that
// replaces the module.
func component(module *debug.Module) cdx.Component {
	linked := module
	if module.Replace != nil && module.Replace.Version != "" {
		linked = module.Replace
	}
	url := "pkg:golang/" + linked.Path
	if linked.Version != "" {
		url += "@" + linked.Version
	}
	c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: linked.Path, Version: linked.Version, PackageURL: url}
	if linked.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: linked.Sum}}
	}
	return c
}

func checksum(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return hash.Sum(nil), nil
}
