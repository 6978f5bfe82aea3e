// Command packaging builds the released artifacts: container images, the Helm chart, and the files of a release.
//
//	packaging generate   writes the files that the chart and config share, and the table of values in the chart's README
//	packaging images     builds the programs of the servers and writes their images
//	packaging release    does the same, and writes everything else of a release
//	packaging licenses   checks and prints the licences of everything that is compiled into the programs
//
// `make generate`, `make images`, `make release` and `make licenses` call it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"tensorstack.dev/batch/tools/packaging/chart"
)

// source is the address of the product's source. It is the home page too.
const source = "https://tensorstack.dev/batch"

// release holds the settings with which the files of a release are built.
type release struct {
	root, out         string
	version, revision string
	registry          string
	// downloads is the URL below which the files of the release can be downloaded.
	downloads          string
	flags              string
	kubernetesFlags    string
	created            time.Time
	platforms          []v1.Platform
	commandLineTargets []v1.Platform
	// compile writes a program for a platform to a path.
	compile func(ctx context.Context, p program, platform v1.Platform, path string) error
	built   map[string]bool
	// notices holds the licences of all modules that are compiled into the programs.
	notices []byte
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: packaging generate|images|release|licenses [flags]")
	}
	r, err := parse(args[0], args[1:])
	if err != nil {
		return err
	}
	switch args[0] {
	case "generate":
		return chart.Generate(r.root)
	case "images":
		return r.allImages(ctx)
	case "release":
		return r.all(ctx)
	case "licenses":
		return r.licenses(ctx)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// parse reads the flags of a command.
func parse(command string, args []string) (*release, error) {
	r := &release{built: map[string]bool{}}
	r.compile = r.goBuild
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.StringVar(&r.root, "root", "../..", "root of the source tree")
	f.StringVar(&r.out, "out", "", "folder to write to; unset: dist in the root")
	f.StringVar(&r.version, "version", "devel", "version of everything")
	f.StringVar(&r.revision, "revision", "", "commit that the source is from")
	f.StringVar(&r.registry, "registry", "tensorstack", "prefix of the images' names")
	f.StringVar(&r.flags, "ldflags", "", "flags of the linker")
	f.StringVar(&r.kubernetesFlags, "kubernetes-ldflags", "", "further flags of the linker for programs that are built from Kubernetes itself")
	f.StringVar(&r.downloads, "download-url", "", "URL below which the files of the release can be downloaded, for krew; unset: releases/VERSION below the home page")
	created := f.String("created", "0", "time of everything that is written, in seconds since 1970")
	platforms := f.String("platforms", "linux/amd64,linux/arm64", "platforms of the servers' programs and of the images")
	targets := f.String("cli-platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "platforms of the command line")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(*created, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reading --created: %w", err)
	}
	r.created = time.Unix(seconds, 0).UTC()
	if r.root, err = filepath.Abs(r.root); err != nil {
		return nil, err
	}
	if r.downloads == "" {
		r.downloads = source + "/releases/" + r.version
	}
	if r.out == "" {
		r.out = filepath.Join(r.root, "dist")
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return nil, err
	}
	if r.platforms, err = parsePlatforms(*platforms); err != nil {
		return nil, err
	}
	r.commandLineTargets, err = parsePlatforms(*targets)
	return r, err
}
