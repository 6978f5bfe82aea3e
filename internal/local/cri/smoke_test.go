package cri

import (
	"testing"
	"time"

	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestSmoke(t *testing.T) {
	n := start(t)
	t0 := time.Now()
	sb, _ := n.sandbox("a")
	t.Log("sandbox", time.Since(t0))
	t0 = time.Now()
	id := n.create(sb, script("c", "echo hello; id; ls /; cat /proc/mounts; cat /etc/resolv.conf; ls -l /dev; ps aux; exit 3"))
	t.Log("create", time.Since(t0))
	t0 = time.Now()
	if _, err := n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	t.Log("start", time.Since(t0))
	st := n.exited(id)
	t.Log(st.ExitCode, n.log(id))
}
