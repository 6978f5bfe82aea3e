package e2e

import (
	"bytes"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"tensorstack.dev/batch/test/kit/await"
)

// exec runs a shell script in a container, and returns its standard output without surrounding white space. It ends the
// test if the script fails.
func (s *space) exec(namespace, pod, container, script string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), await.Patience)
	defer cancel()
	request := s.Core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: []string{"sh", "-c", script}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(s.Env.Config, "GET", request.URL().String())
	if err != nil {
		s.Fatal(err)
	}
	var out, errs bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); err != nil {
		s.Fatalf("running %q in pod %s: %v: %s", script, pod, err, errs.String())
	}
	return strings.TrimSpace(out.String())
}
