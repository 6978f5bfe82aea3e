package integration

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/audit"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// operatorUser is the operator's ServiceAccount.
const operatorUser = "system:serviceaccount:t9k-system:t9k-operator"

// plane is an API server with those controllers of Kubernetes that jobs rest on, and a kubelet that only pretends. Tests
// share it, one after the other; each brings its own operator.
type plane struct {
	env    *testenv.Env
	client client.Client
	core   kubernetes.Interface
	cancel context.CancelFunc
}

// thePlane starts with the first test that needs it.
var thePlane sharedPlane

type sharedPlane struct {
	once sync.Once
	plane
	err error
}

func (s *sharedPlane) get(t *testing.T) *plane {
	t.Helper()
	s.once.Do(func() { s.err = s.start() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return &s.plane
}

func (p *plane) start() error {
	env, err := testenv.New(testenv.Options{
		Components:  []string{local.Etcd, local.APIServer, local.CRDs, local.ControllerManager},
		AuditPolicy: audit.Policy("Metadata", operatorUser, schedulerUser),
		Args: map[string][]string{
			// Clusters may hold controllers to the right to block the deletion of an owner.
			local.APIServer: {"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
			local.ControllerManager: {"--controllers=garbage-collector-controller,namespace-controller,resourcequota-controller," +
				"serviceaccount-controller,root-ca-certificate-publisher-controller"},
		},
	})
	if err != nil {
		return err
	}
	p.env = env
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, batch.AddToScheme, scheduling.AddToScheme, tensorboard.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if p.client, err = client.New(env.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if p.core, err = kubernetes.NewForConfig(env.Config); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	return startKubelet(ctx, p.core)
}

func (p *plane) stop() {
	if p.cancel != nil {
		p.cancel()
	}
	if p.env != nil {
		p.env.Stop()
	}
}
