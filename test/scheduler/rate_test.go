package scheduler

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

var (
	rateNodes = flag.Int("rate-nodes", 0, "measure pods/s on that many nodes; 0: do not")
	ratePods  = flag.Int("rate-pods", 2000, "number of pods of each measurement")
)

// TestRate measures pods/s from the first creation to the last binding, and says how they compare.
func TestRate(t *testing.T) {
	if *rateNodes == 0 {
		t.Skip("a measurement: -rate-nodes 500")
	}
	s := newStage(t)
	s.each(*rateNodes, func(i int) { s.node(fmt.Sprintf("n%d", i), 100, nil) })
	floor := s.measure("default scheduler, single pods", *ratePods, 1, corev1.DefaultSchedulerName)
	for _, size := range []int{1, 8, 64} {
		rate := s.measure(fmt.Sprintf("gangs of %d", size), *ratePods, size, scheduling.SchedulerName)
		t.Logf("gangs of %d: %.2f of the default scheduler", size, rate/floor)
	}
	for i := range 200 {
		s.group(fmt.Sprintf("toolarge%d", i), "default", 2, "101")
	}
	s.awaitReason("toolarge199", scheduling.ReasonNoRoom)
	rate := s.measure("gangs of 8 while 200 groups cannot fit", *ratePods, 8, scheduling.SchedulerName)
	t.Logf("with 200 groups that cannot fit: %.2f of the default scheduler", rate/floor)
}

func (s *stage) each(n int, f func(int)) {
	var group sync.WaitGroup
	next := make(chan int)
	for range 16 {
		group.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}

func (s *stage) measure(name string, pods, size int, scheduler string) float64 {
	s.Helper()
	label := map[string]string{"run": fmt.Sprint(time.Now().UnixNano())}
	began := time.Now()
	s.each(pods/size, func(g int) {
		group := fmt.Sprintf("r%s-%d", label["run"], g)
		if size > 1 {
			s.must(s.client.Create(s.Context(), &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: group, Namespace: "default", Labels: label},
				Spec: scheduling.PodGroupSpec{MinMember: int32(size), Queue: "default"}}))
		}
		for i := range size {
			s.pod(fmt.Sprintf("%s-%d", group, i), "100m", func(p *corev1.Pod) {
				p.Labels = map[string]string{"run": label["run"]}
				p.Spec.SchedulerName = scheduler
				if size > 1 {
					p.Labels[scheduling.LabelGroupName] = group
				}
			})
		}
	})
	created := time.Since(began)
	total := pods / size * size
	s.await(name, func() error {
		list := &corev1.PodList{}
		s.must(s.client.List(s.Context(), list, client.MatchingLabels(label)))
		n := 0
		for _, p := range list.Items {
			if p.Spec.NodeName != "" {
				n++
			}
		}
		if n < total {
			return fmt.Errorf("%d of %d are bound", n, total)
		}
		return nil
	})
	took := time.Since(began)
	s.Logf("%s: %d pods in %s (created after %s): %.0f pods/s", name, total, took.Round(time.Millisecond), created.Round(time.Millisecond), float64(total)/took.Seconds())
	s.must(s.client.DeleteAllOf(s.Context(), &corev1.Pod{}, client.InNamespace("default"), client.MatchingLabels(label), client.GracePeriodSeconds(0)))
	s.must(s.client.DeleteAllOf(s.Context(), &scheduling.PodGroup{}, client.InNamespace("default"), client.MatchingLabels(label)))
	return float64(total) / took.Seconds()
}
