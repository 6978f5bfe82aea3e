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

// Where a TensorBoard's container finds logs.
const (
	claimsDir  = "/logs"
	fetchedDir = "/fetched"
)

// Source is a place that TensorBoard reads logs from.
type Source struct {
	// Name is what TensorBoard calls the source; no two have the same.
	Name string
	// Location is a directory of the container or an address s3://BUCKET/PATH.
	Location string
}

// Download says which files are fetched before TensorBoard starts.
type Download struct {
	// Dir is the directory that they are put into.
	Dir  string
	URLs []string
}

// Logs is all that a TensorBoard shows.
type Logs struct {
	Sources []Source
	// Claims are the PersistentVolumeClaims that are mounted, each at claimsDir/CLAIM.
	Claims []string
	// Secret holds the keys of the object store; empty where none is read.
	Secret    string
	Downloads []Download
}

// Lower tells which logs a spec asks for, or all that is wrong with it.
func Lower(s *tensorboard.TensorBoardSpec) (*Logs, field.ErrorList) {
	at := field.NewPath("spec")
	if errs := Validate(s, at); len(errs) > 0 {
		return nil, errs
	}
	l := &lowering{}
	for i, text := range s.TrainingLogFilesets {
		set, _ := parseFileset(text) // Validate has accepted it
		if set.claim != "" {
			l.claim(set.claim, set.path)
		} else {
			l.store(set.secret, set.bucket, set.path, at.Child("trainingLogFilesets").Index(i))
		}
	}
	if d := s.LogDir; d != nil {
		l.logDir(d, at.Child("logDir"))
	}
	l.separable(at)
	return &l.logs, l.errs
}

type lowering struct {
	faults
	logs Logs
}

func (l *lowering) logDir(d *tensorboard.LogDir, at *field.Path) {
	for _, p := range d.PVC {
		for _, sub := range orWhole(p.SubPath) {
			l.claim(p.Name, sub)
		}
	}
	if d.S3 != nil {
		for _, uri := range d.S3.URI {
			u, _ := url.Parse(uri) // Validate has accepted it
			l.store(d.S3.SecretRef.Name, u.Host, u.Path, at.Child("s3", "secretRef", "name"))
		}
	}
	if d.HTTP != nil {
		l.downloads(d.HTTP.URL)
	}
}

// downloads adds files to fetch. Those of one remote directory are logs of one run, and share a directory and a source.
func (l *lowering) downloads(urls []string) {
	byPlace := map[string]int{}
	for _, address := range urls {
		u, _ := url.Parse(address) // Validate has accepted it
		place := path.Join(u.Hostname(), path.Dir(path.Clean("/"+u.Path)))
		i, known := byPlace[place]
		if !known {
			i = len(l.logs.Downloads)
			byPlace[place] = i
			dir := fmt.Sprintf("%s/%d", fetchedDir, i)
			l.logs.Downloads = append(l.logs.Downloads, Download{Dir: dir})
			l.add(place, dir)
		}
		l.logs.Downloads[i].URLs = append(l.logs.Downloads[i].URLs, address)
	}
}

// orWhole stands for the whole volume where no directory of it is named.
func orWhole(subPaths []string) []string {
	if len(subPaths) == 0 {
		return []string{""}
	}
	return subPaths
}

// claim adds a directory of a volume. The volume is mounted and not the directory, which the training may create later.
func (l *lowering) claim(name, sub string) {
	if !slices.Contains(l.logs.Claims, name) {
		l.logs.Claims = append(l.logs.Claims, name)
	}
	l.add(path.Join(name, sub), path.Join(claimsDir, name, sub))
}

func (l *lowering) store(secret, bucket, dir string, at *field.Path) {
	if l.logs.Secret != "" && l.logs.Secret != secret {
		l.invalid(at, secret, fmt.Sprintf("TensorBoard takes the keys of one store, and those of Secret %q are used already: "+
			"make another TensorBoard for this one", l.logs.Secret))
		return
	}
	l.logs.Secret = secret
	l.add(path.Join(bucket, dir), "s3://"+path.Join(bucket, dir))
}

// separators are what TensorBoard's list of sources does not take within a name.
var separators = regexp.MustCompile(`[^A-Za-z0-9._/-]+`)

func (l *lowering) add(name, location string) {
	name = separators.ReplaceAllString(name, "-")
	free := func(n string) bool {
		return !slices.ContainsFunc(l.logs.Sources, func(s Source) bool { return s.Name == n })
	}
	unique := name
	for i := 2; !free(unique); i++ {
		unique = fmt.Sprintf("%s-%d", name, i)
	}
	l.logs.Sources = append(l.logs.Sources, Source{Name: unique, Location: location})
}

// separable refuses what cannot be told apart in a list of several sources.
func (l *lowering) separable(at *field.Path) {
	if len(l.logs.Sources) < 2 {
		return
	}
	for _, s := range l.logs.Sources {
		if strings.Contains(s.Location, ",") {
			l.invalid(at, s.Location, "TensorBoard separates several sources by commas: rename the directory, or make it the only source")
		}
	}
}

// Option is the command-line option that names the sources.
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
