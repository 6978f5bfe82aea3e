package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tensorstack.dev/batch/tools/packaging/licenses"
)

const (
	// licenseFile is the file with the product's licence.
	licenseFile = "LICENSE"
	// noticesFile is the file with the licences of the modules that are compiled into the programs.
	noticesFile = "THIRD_PARTY_LICENSES"
)

// modules returns the modules that are compiled into the programs, with their licences.
func (r *release) modules(ctx context.Context) ([]licenses.Module, error) {
	servers := licenses.Build{OS: "linux"}
	for _, p := range programs {
		servers.Packages = append(servers.Packages, "./cmd/"+p.name)
	}
	builds := []licenses.Build{servers}
	for _, platform := range r.commandLineTargets {
		builds = append(builds, licenses.Build{OS: platform.OS, Packages: []string{"./cmd/" + commandLine.name}})
	}
	return licenses.Collect(ctx, r.root, builds...)
}

// licenses prints the licences of all modules that are compiled into the programs.
func (r *release) licenses(ctx context.Context) error {
	modules, err := r.modules(ctx)
	if err != nil {
		return err
	}
	for _, m := range modules {
		fmt.Printf("%-28s %s %s\n", strings.Join(m.Licenses, ", "), m.Path, m.Version)
	}
	fmt.Println(len(modules), "modules")
	return nil
}

// licenseTexts returns the texts that accompany the programs, by file name: the product's licence, and the licences of
// others.
func (r *release) licenseTexts() (map[string][]byte, error) {
	ours, err := os.ReadFile(filepath.Join(r.root, licenseFile))
	if err != nil {
		return nil, err
	}
	return map[string][]byte{licenseFile: ours, noticesFile: r.notices}, nil
}

// collectNotices reads the licences that accompany the programs.
func (r *release) collectNotices(ctx context.Context) error {
	modules, err := r.modules(ctx)
	r.notices = licenses.Notices(modules)
	return err
}
