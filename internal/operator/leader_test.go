package operator

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/yaml"
)

// TestAnotherReplicaLeadsWithinFifteenSeconds verifies that another replica leads at most 15 s after the leader was
// killed, with the leader election settings of the operator and of the installed scheduler.
func TestAnotherReplicaLeadsWithinFifteenSeconds(t *testing.T) {
	data, err := os.ReadFile("../../config/scheduler/config_map.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed := &corev1.ConfigMap{}
	if err := yaml.Unmarshal(data, installed); err != nil {
		t.Fatal(err)
	}
	var scheduler struct {
		LeaderElection struct{ LeaseDuration, RetryPeriod metav1.Duration }
	}
	if err := yaml.Unmarshal([]byte(installed.Data["config.yaml"]), &scheduler); err != nil {
		t.Fatal(err)
	}
	s := scheduler.LeaderElection
	if s.LeaseDuration.Duration == 0 || s.RetryPeriod.Duration == 0 {
		t.Errorf("the scheduler's file leaves times of the leader election to defaults: %+v", s)
	}
	if got := leaderTakesOver(leaseDuration, retryPeriod); got > 15*time.Second {
		t.Errorf("it can take %s until another operator leads", got)
	}
	if got := leaderTakesOver(s.LeaseDuration.Duration, s.RetryPeriod.Duration); got > 15*time.Second {
		t.Errorf("it can take %s until another scheduler leads", got)
	}
}

// leaderTakesOver returns the longest time from the last renewal of the lease until another replica leads. That replica
// reads the lease at random intervals of at most 1+JitterFactor retry periods. It may notice the last renewal one such
// interval late, and the end of the lease another interval late.
func leaderTakesOver(lease, retry time.Duration) time.Duration {
	return lease + 2*time.Duration((1+leaderelection.JitterFactor)*float64(retry))
}
