package view

import (
	"fmt"
	"strings"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
)

// CopyName returns the name that a copy of a job gets if nobody chooses another: the first of NAME-2, NAME-3 and so on
// that is not taken, as t9k rerun does. The names of its pods have the length that they may have: a longer NAME is cut.
func CopyName(j *observed.Job, taken func(name string) bool) string {
	job, room := j.Kind.Convert(j.Object), engine.MaxNameLength
	for i := range job.Roles {
		r := &job.Roles[i]
		most := r.Replicas
		if job.Elastic != nil {
			most = job.Elastic.Max
		}
		room = min(room, engine.MaxNameLength-len(engine.ReplicaName("", r.Type, max(0, most-1))))
	}
	for n := 2; ; n++ {
		number := fmt.Sprintf("-%d", n)
		base := j.GetName()[:max(1, min(len(j.GetName()), room-len(number)))]
		if name := strings.TrimRight(base, "-") + number; !taken(name) {
			return name
		}
	}
}
