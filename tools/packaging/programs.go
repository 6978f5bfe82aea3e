package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// program is a main package of the product.
type program struct {
	name  string
	title string
	// kubernetes is true if the program is built from Kubernetes itself and reports the version of Kubernetes.
	kubernetes bool
	// image is true if the program has a container image.
	image bool
}

// programs lists the programs of the servers. A further program with an image needs only a line here.
var programs = []program{
	{name: "t9k-operator", title: "The controllers and webhooks of TensorStack Batch", image: true},
	{name: "t9k-scheduler", title: "A scheduler that starts gangs all together or not at all", kubernetes: true, image: true},
	{name: "t9k-console", title: "The console of TensorStack Batch in a browser", image: true},
	{name: "t9k-local", title: "A real Kubernetes on one machine", kubernetes: true},
}

// commandLine is the program that users run on their own machines.
var commandLine = program{name: "t9k", title: "The command line of TensorStack Batch"}

// build compiles a program for a platform, once, into the folder of programs and returns its path.
func (r *release) build(ctx context.Context, p program, platform v1.Platform) (string, error) {
	path := filepath.Join(r.out, "programs", platform.OS+"-"+platform.Architecture, p.name)
	if platform.OS == "windows" {
		path += ".exe"
	}
	if r.built[path] {
		return path, nil
	}
	if err := r.compile(ctx, p, platform, path); err != nil {
		return "", fmt.Errorf("building %s for %s: %w", p.name, platform, err)
	}
	r.built[path] = true
	return path, nil
}

// goBuild compiles a program. The result depends only on the source, the linker flags, which set the version, and the
// version of Go.
func (r *release) goBuild(ctx context.Context, p program, platform v1.Platform, path string) error {
	flags := r.flags
	if p.kubernetes {
		flags += " " + r.kubernetesFlags
	}
	cmd := exec.CommandContext(ctx, filepath.Join(r.root, "hack", "gobuild"), "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", path, "./cmd/"+p.name)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOBUILD_NOTE=Compiling "+p.name+" for "+platform.String()+". With Kubernetes itself this takes about 4 minutes on two cores the first time.")
	return cmd.Run()
}

// parsePlatforms reads a list such as linux/amd64,linux/arm64.
func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	for _, text := range strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' }) {
		platform, err := v1.ParsePlatform(text)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("%q is no platform such as linux/amd64", text)
		}
		platforms = append(platforms, *platform)
	}
	if len(platforms) == 0 {
		return nil, fmt.Errorf("%q names no platform", list)
	}
	return platforms, nil
}
