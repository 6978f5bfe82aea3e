package jobcontroller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/internal/engine"
)

func TestDeletionAppliesOnlyToThePodThatWasSeen(t *testing.T) {
	uid, version, none := types.UID("u"), "7", int64(0)
	for name, test := range map[string]struct {
		deletion engine.Deletion
		want     metav1.DeleteOptions
	}{
		"the pod had ended": {engine.Deletion{UID: uid}, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}},
		"the pod ran":       {engine.Deletion{UID: uid, ResourceVersion: version}, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}},
		"the node is lost":  {engine.Deletion{UID: uid, Force: true}, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: &none}},
	} {
		t.Run(name, func(t *testing.T) {
			options := (&client.DeleteOptions{}).ApplyOptions(deleteOptions(&test.deletion)).AsDeleteOptions()
			if diff := cmp.Diff(&test.want, options); diff != "" {
				t.Error(diff)
			}
		})
	}
}
