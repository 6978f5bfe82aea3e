package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/kubectl/pkg/cmd/apply"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// TestInstallIsIdempotentAndRestricted verifies an installation on a new cluster, as described in docs/operations.md:
// repeating it changes nothing, its pods meet the Pod Security level restricted, and its roles grant no wildcards. It
// also verifies what t9k and an operator do before the CRDs exist.
func TestInstallIsIdempotentAndRestricted(t *testing.T) {
	t.Parallel()
	p := plane.Start(t, testenv.Options{Components: []string{local.Etcd, local.APIServer}})
	w := &world{&namespace.Test{T: t, Plane: p, Namespace: "t9k-system"}}

	w.checkCLIWithoutKinds()
	t.Run("an operator that is there before the CRDs waits for them", func(t *testing.T) { w.in(t).checkWaitForCRDs() })

	dir := w.installation()
	first := w.kubectlApply(dir)
	w.Await("the CRDs are established", func() error { return crdsEstablished(w) })

	t.Run("again, as an upgrade does, changes nothing", func(t *testing.T) {
		w := w.in(t)
		before, after := w.kubectlApply(dir), w.kubectlApply(dir)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("resource versions differ (-before +after):\n%s", diff)
		}
		if len(before) != len(first) {
			t.Errorf("%d objects at first, then %d", len(first), len(before))
		}
	})
	t.Run("the operator's pods are allowed under Pod Security restricted", func(t *testing.T) {
		w := w.in(t)
		operator := &appsv1.Deployment{}
		w.Must(w.Get("t9k-operator", operator))
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: w.Namespace, Labels: operator.Spec.Template.Labels},
			Spec:       operator.Spec.Template.Spec,
		}
		if err := p.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
			t.Errorf("the unchanged pod: %v", err)
		}
		pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		err := p.Client.Create(t.Context(), pod, client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "restricted") {
			t.Errorf("the pod with privilege escalation: got %v, want a refusal by Pod Security restricted", err)
		}
	})
	t.Run("roles grant no wildcard, and secrets only by name", func(t *testing.T) { w.in(t).checkRoles() })
}

// TestInstallOnOlderKubernetes verifies that config/before-1.34 can be installed on an API server with the APIs of the
// oldest supported version.
func TestInstallOnOlderKubernetes(t *testing.T) {
	t.Parallel()
	p := plane.Start(t, testenv.Options{Components: []string{local.Etcd, local.APIServer},
		Args: map[string][]string{local.APIServer: {"--emulated-version=1.33"}}})
	w := &world{&namespace.Test{T: t, Plane: p, Namespace: "t9k-system"}}
	w.kubectlApply("../../config/before-1.34")
	w.Await("the CRDs are established", func() error { return crdsEstablished(w) })
}

// installation returns the folder with the manifests for the version of the API server, as docs/operations.md
// describes.
func (w *world) installation() string {
	w.Helper()
	switch minor := w.minorVersion(); {
	case minor < 34:
		return "../../config/before-1.34"
	case minor < 36:
		return "../../config/before-1.36"
	default:
		return "../../config/default"
	}
}

// minorVersion returns the minor version of Kubernetes that the API server has or emulates.
func (w *world) minorVersion() int {
	w.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(w.Env.Config)
	w.Must(err)
	info, err := d.ServerVersion()
	w.Must(err)
	minor := info.EmulationMinor
	if minor == "" {
		minor = info.Minor
	}
	n, err := strconv.Atoi(minor)
	w.Must(err)
	return n
}

// kubectlApply runs `kubectl apply --server-side -k DIR` and returns the resource version of each object by "KIND
// NAMESPACE/NAME".
func (w *world) kubectlApply(dir string) map[string]string {
	w.Helper()
	config := genericclioptions.NewConfigFlags(true)
	config.KubeConfig = &w.Env.Kubeconfig
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
	flags, cmd := apply.NewApplyFlags(streams), &cobra.Command{}
	flags.AddFlags(cmd)
	w.Must(cmd.ParseFlags([]string{"--server-side", "-k", dir, "-o", "json"}))
	options, err := flags.ToOptions(cmdutil.NewFactory(config), cmd, "kubectl", nil)
	w.Must(err)
	w.Must(options.Validate())
	if err := options.Run(); err != nil {
		w.Fatalf("kubectl apply: %v\n%s", err, &out)
	}
	var list unstructured.UnstructuredList
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		w.Fatalf("reading the output of kubectl apply: %v\n%s", err, &out)
	}
	versions := map[string]string{}
	for _, o := range list.Items {
		versions[fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())] = o.GetResourceVersion()
	}
	return versions
}

func crdsEstablished(w *world) error {
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := w.Client.List(w.Context(), list); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return errors.New("there are no CRDs")
	}
	for _, crd := range list.Items {
		conditions := map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{}
		for _, condition := range crd.Status.Conditions {
			conditions[condition.Type] = condition.Status
			if condition.Type == apiextensionsv1.NonStructuralSchema {
				return fmt.Errorf("%s: %s", crd.Name, condition.Message)
			}
		}
		if conditions[apiextensionsv1.Established] != apiextensionsv1.ConditionTrue {
			return fmt.Errorf("%s is not established: %v", crd.Name, conditions)
		}
	}
	return nil
}

// checkRoles checks that the installed roles with this project's label grant no wildcard, and access to Secrets only
// by name.
func (w *world) checkRoles() {
	var rules []rbacv1.PolicyRule
	clusterRoles, roles := &rbacv1.ClusterRoleList{}, &rbacv1.RoleList{}
	ours := client.MatchingLabels{"app.kubernetes.io/name": "t9k-batch"}
	w.Must(w.Client.List(w.Context(), clusterRoles, ours))
	w.Must(w.Client.List(w.Context(), roles, ours))
	for _, r := range clusterRoles.Items {
		rules = append(rules, r.Rules...)
	}
	for _, r := range roles.Items {
		rules = append(rules, r.Rules...)
	}
	if len(clusterRoles.Items) == 0 || len(roles.Items) == 0 {
		w.Fatalf("found %d cluster roles and %d roles", len(clusterRoles.Items), len(roles.Items))
	}
	for _, rule := range rules {
		for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
			if strings.Contains(word, "*") {
				w.Errorf("wildcard in %v", rule)
			}
		}
		if slices.Contains(rule.Resources, "secrets") && len(rule.ResourceNames) == 0 {
			w.Errorf("any secret in %v", rule)
		}
	}
}
