// Command apidocs writes the API reference from the doc comments and markers of the Go types, one Markdown page for
// each kind.
//
//	apidocs OUTPUT_DIR PACKAGE_DIR...
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: apidocs OUTPUT_DIR PACKAGE_DIR...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "apidocs: %v\n", err)
		os.Exit(1)
	}
}

// run writes a page for every kind in the packages, and removes the pages of kinds that no longer exist.
func run(out string, dirs []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(out, "*.md"))
	if err != nil {
		return err
	}
	written := map[string]bool{}
	for _, dir := range dirs {
		pkg, err := parsePackage(dir)
		if err != nil {
			return err
		}
		for _, kind := range pkg.kinds() {
			path := filepath.Join(out, strings.ToLower(kind.name)+".md")
			if err := os.WriteFile(path, []byte(page(pkg, kind)), 0o644); err != nil {
				return err
			}
			written[path] = true
		}
	}
	for _, path := range old {
		if written[path] {
			continue
		}
		if err := removeGenerated(path); err != nil {
			return err
		}
	}
	return nil
}

// removeGenerated removes a page that this command has written. It keeps pages written by hand.
func removeGenerated(path string) error {
	data, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(data, []byte(header)) {
		return err
	}
	return os.Remove(path)
}
