package main

import (
	"context"
	"fmt"
	"strings"

	"tensorstack.dev/batch/tools/packaging/licenses"
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

// licenses prints the licences of everything that is compiled into the programs.
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

// collectNotices reads the licences that accompany the programs.
func (r *release) collectNotices(ctx context.Context) error {
	modules, err := r.modules(ctx)
	r.notices = licenses.Notices(modules)
	return err
}
