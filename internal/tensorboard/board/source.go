package board

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// Directories of the container that hold logs.
const (
	claimsDir  = "/logs"
	fetchedDir = "/fetched"
)

// Source is a place from which TensorBoard reads logs.
type Source struct {
	// Name is the name under which TensorBoard shows the source. It is unique within a TensorBoard.
	Name string
	// Location is a directory in the container or an address s3://BUCKET/PATH.
	Location string
}

// Download is a list of files that are downloaded before TensorBoard starts.
type Download struct {
	// Dir is the directory in the container that receives the files.
	Dir  string
	URLs []string
}

// Logs describes all logs that a TensorBoard shows.
type Logs struct {
	Sources []Source
	// Claims are the names of the PersistentVolumeClaims to mount, each at claimsDir/CLAIM.
	Claims []string
	// Secret is the name of the Secret with the keys of the object store; empty if no object store is read.
	Secret    string
	Downloads []Download
}

// Convert returns the logs that a spec selects, and the errors in the spec. If there are errors, the logs must not be
// used. If Validate finds errors, Convert returns only those.
func Convert(s *tensorboard.TensorBoardSpec) (*Logs, field.ErrorList) {
	at := field.NewPath("spec")
	if errs := Validate(s, at); len(errs) > 0 {
		return nil, errs
	}
	c := &conversion{}
	for i, text := range s.TrainingLogFilesets {
		set, _ := parseFileset(text) // Validate has accepted it
		if set.claim != "" {
			c.claim(set.claim, set.path)
		} else {
			c.store(set.secret, set.bucket, set.path, at.Child("trainingLogFilesets").Index(i))
		}
	}
	if d := s.LogDir; d != nil {
		c.logDir(d, at.Child("logDir"))
	}
	c.separable(at)
	return &c.logs, c.errs
}

// conversion is the state of one call of Convert.
type conversion struct {
	specErrors
	logs Logs
}

// logDir adds the sources of a logDir.
func (c *conversion) logDir(d *tensorboard.LogDir, at *field.Path) {
	for _, p := range d.PVC {
		for _, sub := range orRoot(p.SubPath) {
			c.claim(p.Name, sub)
		}
	}
	if d.S3 != nil {
		for _, uri := range d.S3.URI {
			u, _ := url.Parse(uri) // Validate has accepted it
			c.store(d.S3.SecretRef.Name, u.Host, u.Path, at.Child("s3", "secretRef", "name"))
		}
	}
	if d.HTTP != nil {
		c.downloads(d.HTTP.URL)
	}
}

// downloads adds files to download. Files of one remote directory are logs of one run, so they share a directory and a
// source.
func (c *conversion) downloads(urls []string) {
	byPlace := map[string]int{}
	for _, address := range urls {
		u, _ := url.Parse(address) // Validate has accepted it
		place := path.Join(u.Hostname(), path.Dir(path.Clean("/"+u.Path)))
		i, known := byPlace[place]
		if !known {
			i = len(c.logs.Downloads)
			byPlace[place] = i
			dir := fmt.Sprintf("%s/%d", fetchedDir, i)
			c.logs.Downloads = append(c.logs.Downloads, Download{Dir: dir})
			c.add(place, dir)
		}
		c.logs.Downloads[i].URLs = append(c.logs.Downloads[i].URLs, address)
	}
}

// orRoot returns subPaths or, if it is empty, the root of the volume.
func orRoot(subPaths []string) []string {
	if len(subPaths) == 0 {
		return []string{""}
	}
	return subPaths
}

// claim adds a directory of a volume. The pod mounts the whole volume instead of the directory, because the training
// may create the directory later.
func (c *conversion) claim(name, sub string) {
	if !slices.Contains(c.logs.Claims, name) {
		c.logs.Claims = append(c.logs.Claims, name)
	}
	c.add(path.Join(name, sub), path.Join(claimsDir, name, sub))
}

// store adds a directory of an object store. If another Secret is in use already, store adds an error for the field at
// instead.
func (c *conversion) store(secret, bucket, dir string, at *field.Path) {
	if c.logs.Secret != "" && c.logs.Secret != secret {
		c.invalid(at, secret, fmt.Sprintf("TensorBoard takes the keys of one store, and those of Secret %q are used already: "+
			"make another TensorBoard for this one", c.logs.Secret))
		return
	}
	c.logs.Secret = secret
	c.add(path.Join(bucket, dir), "s3://"+path.Join(bucket, dir))
}

// separators matches sequences of characters that names of sources must not contain, such as the separators in
// TensorBoard's list of sources.
var separators = regexp.MustCompile(`[^A-Za-z0-9._/-]+`)

// add adds a source. It replaces separators in the name by hyphens, and appends a number if the name is taken.
func (c *conversion) add(name, location string) {
	name = separators.ReplaceAllString(name, "-")
	free := func(n string) bool {
		return !slices.ContainsFunc(c.logs.Sources, func(s Source) bool { return s.Name == n })
	}
	unique := name
	for i := 2; !free(unique); i++ {
		unique = fmt.Sprintf("%s-%d", name, i)
	}
	c.logs.Sources = append(c.logs.Sources, Source{Name: unique, Location: location})
}

// separable adds an error for each location with a comma if there are several sources, because TensorBoard's list
// separates sources by commas.
func (c *conversion) separable(at *field.Path) {
	if len(c.logs.Sources) < 2 {
		return
	}
	for _, s := range c.logs.Sources {
		if strings.Contains(s.Location, ",") {
			c.invalid(at, s.Location, "TensorBoard separates several sources by commas: rename the directory, or make it the only source")
		}
	}
}

// Option returns the command-line option that names the sources.
func (l *Logs) Option() string {
	if len(l.Sources) == 1 {
		return "--logdir=" + l.Sources[0].Location
	}
	list := make([]string, len(l.Sources))
	for i, s := range l.Sources {
		list[i] = s.Name + ":" + s.Location
	}
	return "--logdir_spec=" + strings.Join(list, ",")
}
