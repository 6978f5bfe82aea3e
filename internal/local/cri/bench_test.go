package cri

import (
	"testing"

	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkPod measures each call in the life of a pod, in milliseconds.
func BenchmarkPod(b *testing.B) {
	n := start(b)
	spent := map[string]float64{}
	measure := func(what string, f func()) {
		begun := b.Elapsed()
		f()
		spent[what] += (b.Elapsed() - begun).Seconds() * 1000
	}
	for b.Loop() {
		var sb, id string
		measure("sandbox-ms", func() { sb, _ = n.sandbox("a") })
		measure("create-ms", func() { id = n.create(sb, script("c", "exec sleep 1000")) })
		measure("start-ms", func() {
			if _, err := n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: id}); err != nil {
				b.Fatal(err)
			}
		})
		measure("exec-ms", func() { n.sync(id, "true") })
		measure("stop-ms", func() {
			if _, err := n.StopContainer(n.ctx(), &pb.StopContainerRequest{ContainerId: id, Timeout: 10}); err != nil {
				b.Fatal(err)
			}
		})
		measure("remove-ms", func() {
			if _, err := n.RemovePodSandbox(n.ctx(), &pb.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
				b.Fatal(err)
			}
		})
	}
	for what, ms := range spent {
		b.ReportMetric(ms/float64(b.N), what)
	}
}
