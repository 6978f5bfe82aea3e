package view

import (
	"fmt"
	"strings"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
)

// CopyName returns the default name of a copy of a job: the first of NAME-2, NAME-3 and so on that is not taken, as for
// t9k rerun. Unlike t9k rerun, it truncates NAME if the names of the copy's pods would be too long.
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
