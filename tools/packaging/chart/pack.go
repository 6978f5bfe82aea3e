package chart

import (
	"path/filepath"
	"regexp"
	"time"

	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// Load reads the chart of the source tree, sets its version, and gives all of its files the same time.
func Load(root, version string, created time.Time) (*v2.Chart, error) {
	c, err := loader.LoadDir(filepath.Join(root, Dir))
	if err != nil {
		return nil, err
	}
	c.Metadata.Version, c.Metadata.AppVersion = SemVer(version), version
	c.ModTime, c.SchemaModTime = created, created
	for _, f := range c.Raw {
		f.ModTime = created
	}
	for _, f := range c.Templates {
		f.ModTime = created
	}
	for _, f := range c.Files {
		f.ModTime = created
	}
	return c, nil
}

// Pack writes the chart as an archive into a folder and returns the path of the archive.
func Pack(c *v2.Chart, dir string) (string, error) { return chartutil.Save(c, dir) }

var release = regexp.MustCompile(`^v(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)$`)

// SemVer returns the semantic version for the output of `git describe`. If the output does not begin with a release
// tag, the result is 0.0.0-gOUTPUT, which comes before all releases.
func SemVer(version string) string {
	if m := release.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return "0.0.0-g" + version
}
