package jobcontroller

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

func TestRefusalsEndWhenNoPlanCreatesTheObject(t *testing.T) {
	pods := []engine.NewPod{{}}
	immediate, paused := &batch.JobStatus{RunMode: batch.RunImmediate}, &batch.JobStatus{RunMode: batch.RunPause}
	for name, c := range map[string]struct {
		old  *batch.JobStatus
		plan engine.Plan
		kept bool
	}{
		"the plan creates it":               {immediate, engine.Plan{Pods: pods}, true},
		"the plan creates it, first status": {&batch.JobStatus{}, engine.Plan{Pods: pods, Status: immediate}, true},
		"the plan creates nothing":          {immediate, engine.Plan{}, false},
		"the job is paused":                 {immediate, engine.Plan{Status: paused}, false},
		"the run mode changes":              {paused, engine.Plan{Pods: pods, Status: immediate}, false},
	} {
		m := &expectations{refusals: []engine.Refusal{{}}}
		if m.dropRefusals(c.old, &c.plan); (len(m.refusals) > 0) != c.kept {
			t.Errorf("%s: kept %t, want %t", name, len(m.refusals) > 0, c.kept)
		}
	}
}

func TestRefusedCreationIsTriedAgainWhenItMaySucceed(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	ends := apierrors.NewForbidden(pods, "w-0", errors.New("namespace ns is being terminated"))
	ends.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err      error
		reported bool // the status already has the refusal
		want     time.Duration
		backsOff bool // the work queue delays the next pass
	}{
		"the namespace is being deleted":                     {err: ends, want: firstRetry},
		"the namespace is being deleted, in the status":      {err: ends, reported: true, want: maxRetry},
		"a quota refuses it":                                 {err: apierrors.NewForbidden(pods, "w-0", errors.New("exceeded quota")), backsOff: true},
		"the API server is overloaded":                       {err: apierrors.NewTooManyRequests("later", 1), backsOff: true},
		"an unrelated object has the name, in the status":    {err: errNameTaken, reported: true, want: nameTakenDelay},
		"an unrelated object has the name, for the 1st time": {err: errNameTaken, want: firstRetry},
	} {
		t.Run(name, func(t *testing.T) {
			err, seen, exp := c.err, &engine.Seen{}, &expectations{}
			if !errors.Is(err, errNameTaken) {
				err = (&actuator{}).createError(t.Context(), &engine.Job{}, &corev1.Pod{}, err, exp)
			}
			if c.reported {
				seen.Refusals = []engine.Refusal{{}}
			}
			if named := errors.Is(err, errNameTaken) || errors.Is(err, errNamespaceTerminating); named == c.backsOff {
				t.Fatalf("error %v", err)
			}
			if got := refusalDelay(seen, err); !c.backsOff && got != c.want {
				t.Errorf("delay %s, want %s", got, c.want)
			}
			if errors.Is(c.err, ends) && (len(exp.refusals) != 1 || !strings.Contains(exp.refusals[0].Message, "being terminated")) {
				t.Errorf("refusals %+v", exp.refusals)
			}
		})
	}
}

func TestMessageNamesTheOwnerOfATakenName(t *testing.T) {
	job := &engine.Job{Kind: "GenericJob", Name: "mnist", UID: "new"}
	yes, now := true, metav1.Now()
	by := func(kind, name string, deleted *metav1.Time) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: deleted}}
		if kind != "" {
			o.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: "old", Controller: &yes}}
		}
		return o
	}
	for want, live := range map[string]*metav1.PartialObjectMetadata{
		`the previous GenericJob "mnist" and has not ended yet; the job continues`:            by("GenericJob", "mnist", &now),
		`the previous GenericJob "mnist", which was deleted; the job continues`:               by("GenericJob", "mnist", nil),
		`belongs to Deployment "web" and is being deleted; the job continues`:                 by("Deployment", "web", &now),
		`belongs to GenericJob "other"; delete or rename that object or the job`:              by("GenericJob", "other", nil),
		`belongs to nobody (it has no controller); delete or rename that object or the job`:   by("", "", nil),
		`belongs to PyTorchTrainingJob "mnist"; delete or rename that object or the job`:      by("PyTorchTrainingJob", "mnist", nil),
		`belongs to nobody (it has no controller) and is being deleted; the job continues wh`: by("", "", &now),
	} {
		if got := nameTaken(live, job); !strings.Contains(got, want) {
			t.Errorf("%q does not contain %q", got, want)
		}
	}
}

// TestShortenKeepsCharactersWhole verifies that a message that is cut within a character remains valid UTF-8, because
// the API server refuses an event with other text.
func TestShortenKeepsCharactersWhole(t *testing.T) {
	for _, long := range []string{strings.Repeat("ä", 600), "x" + strings.Repeat("ä", 600)} {
		if got := shorten(long); !utf8.ValidString(got) || len(got) > 1024 || !strings.HasPrefix(long, strings.TrimSuffix(got, " …")) {
			t.Errorf("%q", got)
		}
	}
	if got := shorten("short"); got != "short" {
		t.Errorf("%q", got)
	}
}
