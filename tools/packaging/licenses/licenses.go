// Package licenses collects the licences of all modules that are compiled into the product's programs, and refuses
// licences that do not allow us to distribute the programs. It reads the modules on this machine and needs no network.
// Start reading at Collect.
package licenses

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed lists the licences, by their SPDX identifiers, under which code may be part of our programs.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Clear", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "Unlicense", "Zlib", "0BSD"}

// reviewed lists, by module and file, the licence files that a person has read because no program recognises them, or
// because they are about something that is not compiled into programs. The value is the identifier of the licence that
// the person has found; empty for a file that licenses nothing in the programs.
var reviewed = map[string]string{
	"github.com/opencontainers/go-digest LICENSE.docs": "", // the documentation only
	"modernc.org/libc LICENSE-3RD-PARTY.md":            "MIT",
	"modernc.org/memory LICENSE-LOGO":                  "", // a picture only
	"modernc.org/sqlite LICENSE-SQLITE":                "blessing",
}

// minCoverage is the share of a licence file, in percent, that must be text of known licences.
const minCoverage = 70

// Module is a module that is compiled into the programs in whole or in part.
type Module struct {
	// Path and Version identify the module.
	Path, Version string
	// Licenses are the SPDX identifiers of its licences.
	Licenses []string
	// Texts are its licence files and notices.
	Texts []Text
}

// Text is a licence file or a notice.
type Text struct {
	// File is its path in the module.
	File string
	Data []byte
}

// Build is a set of packages that are compiled for an operating system.
type Build struct {
	OS       string
	Packages []string
}

// Collect returns the modules that the builds in a source tree need, in the order of their paths, without the modules
// of the tree itself. The error names every module without a licence file and every module with a licence that is
// unknown or not allowed.
func Collect(ctx context.Context, root string, builds ...Build) ([]Module, error) {
	dirs := map[[3]string][]string{} // path, version and folder of a module, and the folders of its packages
	for _, b := range builds {
		cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-f",
			"{{if .Module}}{{if not .Module.Main}}{{.Module.Path}}\t{{.Module.Version}}\t{{.Module.Dir}}\t{{.Dir}}{{end}}{{end}}"}, b.Packages...)...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOOS="+b.OS, "CGO_ENABLED=0")
		var problem bytes.Buffer
		cmd.Stderr = &problem
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("listing the packages for %s: %w: %s", b.OS, err, bytes.TrimSpace(problem.Bytes()))
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if len(fields) != 4 || strings.HasPrefix(fields[2], root+string(filepath.Separator)) {
				continue
			}
			key := [3]string(fields[:3])
			dirs[key] = append(dirs[key], fields[3])
		}
	}
	var modules []Module
	var problems []error
	for key, packages := range dirs {
		m := Module{Path: key[0], Version: key[1]}
		if err := m.read(key[2], packages); err != nil {
			problems = append(problems, err)
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return modules, errors.Join(problems...)
}

var (
	licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notices?([.-].*)?$`)
)

// read reads the licence files and notices of a module that are in the directories of its packages and above them. It
// returns an error if the module has no licence file, or a licence that is unknown or not allowed.
func (m *Module) read(dir string, packages []string) error {
	folders := map[string]bool{dir: true}
	for _, p := range packages {
		for ; p != dir && strings.HasPrefix(p, dir); p = filepath.Dir(p) {
			folders[p] = true
		}
	}
	var problems []error
	for folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		for _, e := range entries {
			isLicense := licenseFile.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go")
			if e.IsDir() || (!isLicense && !noticeFile.MatchString(e.Name())) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return fmt.Errorf("%s: %w", m.Path, err)
			}
			file := strings.TrimPrefix(filepath.Join(folder, e.Name()), dir+string(filepath.Separator))
			m.Texts = append(m.Texts, Text{File: file, Data: data})
			if isLicense {
				problems = append(problems, m.classify(file, data))
			}
		}
	}
	slices.SortFunc(m.Texts, func(a, b Text) int { return strings.Compare(a.File, b.File) })
	slices.Sort(m.Licenses)
	m.Licenses = slices.Compact(m.Licenses)
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if len(m.Licenses) == 0 {
		return fmt.Errorf("%s@%s has no licence file", m.Path, m.Version)
	}
	return nil
}

// classify adds the licences of a file to the module. It returns an error for a licence that is unknown or not allowed.
func (m *Module) classify(file string, data []byte) error {
	if license, ok := reviewed[m.Path+" "+file]; ok {
		if license != "" {
			m.Licenses = append(m.Licenses, license)
		}
		return nil
	}
	found := licensecheck.Scan(data)
	if found.Percent < minCoverage {
		return fmt.Errorf("%s@%s: %s is no licence that is known", m.Path, m.Version, file)
	}
	for _, match := range found.Match {
		if match.IsURL {
			continue
		}
		m.Licenses = append(m.Licenses, match.ID)
		if !slices.Contains(allowed, match.ID) {
			return fmt.Errorf("%s@%s: %s is %s, which is not allowed", m.Path, m.Version, file, match.ID)
		}
	}
	return nil
}

// Notices returns the text that accompanies the programs: every module with its licences.
func Notices(modules []Module) []byte {
	var out bytes.Buffer
	out.WriteString("These programs contain parts of the following modules, under the licences that follow their names.\n")
	for _, m := range modules {
		for _, t := range m.Texts {
			fmt.Fprintf(&out, "\n%s\n%s %s: %s\n%s\n\n", strings.Repeat("=", 80), m.Path, m.Version, t.File, strings.Repeat("=", 80))
			out.Write(bytes.TrimSpace(t.Data))
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}
