package board

import (
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// Validate returns the errors in a spec. Errors name path or fields below it. Only Convert finds sources with different
// Secrets, and commas in the locations of several sources.
func Validate(s *tensorboard.TensorBoardSpec, path *field.Path) field.ErrorList {
	var f specErrors
	if s.Image == "" {
		f.required(path.Child("image"), "name the image that holds tensorboard")
	}
	sources := len(s.TrainingLogFilesets)
	for i, text := range s.TrainingLogFilesets {
		if _, problem := parseFileset(text); problem != "" {
			f.invalid(path.Child("trainingLogFilesets").Index(i), text, problem)
		}
	}
	if d := s.LogDir; d != nil {
		sources += len(d.PVC)
		if d.S3 != nil || d.HTTP != nil {
			sources++
		}
		f.logDir(d, path.Child("logDir"))
	}
	if sources == 0 {
		f.required(path, "a TensorBoard shows logs: give it a source of logs in logDir")
	}
	return f.errs
}

// specErrors collects the errors of a spec.
type specErrors struct{ errs field.ErrorList }

func (f *specErrors) invalid(path *field.Path, value any, detail string) {
	f.errs = append(f.errs, field.Invalid(path, value, detail))
}

func (f *specErrors) required(path *field.Path, detail string) {
	f.errs = append(f.errs, field.Required(path, detail))
}

func (f *specErrors) logDir(d *tensorboard.LogDir, path *field.Path) {
	for i := range d.PVC {
		at := path.Child("pvc").Index(i)
		if d.PVC[i].Name == "" {
			f.required(at.Child("name"), "name the PersistentVolumeClaim")
		}
		for k, sub := range d.PVC[i].SubPath {
			if strings.HasPrefix(sub, "/") || escapes(sub) {
				f.invalid(at.Child("subPath").Index(k), sub, "a path below the volume is relative and without \"..\": change it")
			}
		}
	}
	if d.S3 != nil {
		at := path.Child("s3")
		if d.S3.SecretRef.Name == "" {
			f.required(at.Child("secretRef", "name"), "name the Secret with the keys of the store")
		}
		f.urls(d.S3.URI, []string{"s3"}, "s3://BUCKET/PATH", at.Child("uri"))
	}
	if d.HTTP != nil {
		f.urls(d.HTTP.URL, []string{"http", "https"}, "https://HOST/PATH", path.Child("http", "url"))
	}
}

// escapes reports whether a relative path can refer to a place outside its directory.
func escapes(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// urls validates a list of addresses, which must not be empty. form describes a valid address.
func (f *specErrors) urls(list, schemes []string, form string, path *field.Path) {
	if len(list) == 0 {
		f.required(path, "list at least one address")
	}
	for i, s := range list {
		u, err := url.Parse(s)
		if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" {
			f.invalid(path.Index(i), s, "not an address of this source: write "+form)
		}
	}
}

// fileset is a source of logs in the notation of the field trainingLogFilesets, which is older than logDir.
type fileset struct {
	// claim is the PersistentVolumeClaim; empty for an object store.
	claim string
	// secret is the Secret with the keys of the object store, and bucket is its bucket.
	secret, bucket string
	// path is relative to the volume or the bucket.
	path string
}

// parseFileset parses t9k://pvc/NAME/SUBPATH or t9k://minio/SECRET/BUCKET/SUBPATH. problem is the error in text; empty
// if there is none.
func parseFileset(text string) (set fileset, problem string) {
	const forms = "write t9k://pvc/NAME/SUBPATH or t9k://minio/SECRET/BUCKET/SUBPATH"
	rest, ok := strings.CutPrefix(text, "t9k://")
	if !ok {
		return fileset{}, "not a fileset: " + forms
	}
	parts := strings.Split(rest, "/")
	if slices.Contains(parts, "..") {
		return fileset{}, "a fileset does not leave its volume: leave out \"..\""
	}
	switch parts[0] {
	case "pvc":
		if len(parts) < 2 || parts[1] == "" {
			return fileset{}, "no name of a PersistentVolumeClaim: " + forms
		}
		return fileset{claim: parts[1], path: strings.Join(parts[2:], "/")}, ""
	case "minio":
		if len(parts) < 3 || parts[1] == "" || parts[2] == "" {
			return fileset{}, "a Secret or a bucket is missing: " + forms
		}
		return fileset{secret: parts[1], bucket: parts[2], path: strings.Join(parts[3:], "/")}, ""
	}
	return fileset{}, "neither pvc nor minio: " + forms
}
