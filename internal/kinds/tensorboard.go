package kinds

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// tensorBoard checks the TensorBoard that a training job asks for.
func (l *lowering) tensorBoard(s *tensorboard.TensorBoardSpec, path *field.Path) {
	if s == nil {
		return
	}
	if s.Image == "" {
		l.required(path.Child("image"), "name the image that holds tensorboard")
	}
	sources := len(s.TrainingLogFilesets)
	for i, text := range s.TrainingLogFilesets {
		if detail := filesetFault(text); detail != "" {
			l.invalid(path.Child("trainingLogFilesets").Index(i), text, detail)
		}
	}
	if d := s.LogDir; d != nil {
		sources += len(d.PVC) + len(d.S3) + len(d.HTTP)
		l.logDir(d, path.Child("logDir"))
	}
	if sources == 0 {
		l.required(path, "a TensorBoard shows logs: give it a source of logs in logDir")
	}
	if s.Scheduler != nil && s.Scheduler.T9kScheduler != nil {
		l.queueName(s.Scheduler.T9kScheduler.Queue, path.Child("scheduler", "t9kScheduler", "queue"))
	}
}

// filesetFault says what is wrong with a fileset; empty where nothing is.
func filesetFault(text string) string {
	const forms = "write t9k://pvc/NAME/SUBPATH or t9k://minio/SECRET/BUCKET/SUBPATH"
	rest, ok := strings.CutPrefix(text, "t9k://")
	if !ok {
		return "not a fileset: " + forms
	}
	parts := strings.Split(rest, "/")
	for _, p := range parts {
		if p == ".." {
			return "a fileset does not leave its volume: leave out \"..\""
		}
	}
	switch parts[0] {
	case "pvc":
		if len(parts) < 2 || parts[1] == "" {
			return "no name of a PersistentVolumeClaim: " + forms
		}
	case "minio":
		if len(parts) < 3 || parts[1] == "" || parts[2] == "" {
			return "a Secret or a bucket is missing: " + forms
		}
	default:
		return "neither pvc nor minio: " + forms
	}
	return ""
}

func (l *lowering) logDir(d *tensorboard.LogDir, path *field.Path) {
	for i := range d.PVC {
		at := path.Child("pvc").Index(i)
		if d.PVC[i].Name == "" {
			l.required(at.Child("name"), "name the PersistentVolumeClaim")
		}
		for k, sub := range d.PVC[i].SubPath {
			if strings.HasPrefix(sub, "/") || strings.Contains("/"+sub+"/", "/../") {
				l.invalid(at.Child("subPath").Index(k), sub, "a path below the volume is relative and without \"..\": change it")
			}
		}
	}
	for i := range d.S3 {
		at := path.Child("s3").Index(i)
		if d.S3[i].SecretRef.Name == "" {
			l.required(at.Child("secretRef", "name"), "name the Secret with the keys of the store")
		}
		l.urls(d.S3[i].URI, []string{"s3"}, "s3://BUCKET/PATH", at.Child("uri"))
	}
	for i := range d.HTTP {
		l.urls(d.HTTP[i].URL, []string{"http", "https"}, "https://HOST/PATH", path.Child("http").Index(i).Child("url"))
	}
}

// urls checks a list of addresses, which is not empty. form says what they look like.
func (l *lowering) urls(list, schemes []string, form string, path *field.Path) {
	if len(list) == 0 {
		l.required(path, "list at least one address")
	}
	for i, s := range list {
		u, err := url.Parse(s)
		known := false
		for _, scheme := range schemes {
			known = known || err == nil && u.Scheme == scheme
		}
		if !known || u.Host == "" {
			l.invalid(path.Index(i), s, "not an address of this source: write "+form)
		}
	}
}
