package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	nodestages "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	podstages "sigs.k8s.io/kwok/kustomize/stage/pod/fast"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/audit"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// namespace is the namespace of all measured objects.
const namespace = "default"

// These are users of a control plane. Each of them has its name as its token, and all rights.
const (
	userBench = "bench" // submits jobs, watches them and ends pods
	userKWOK  = "kwok"
	userPeer  = "measured" // the system that is measured
)

// plane is a fresh control plane with the controller of one system.
type plane struct {
	ctx    context.Context // done when the measurement or any process of the control plane ends
	cancel context.CancelCauseFunc
	env    *testenv.Env
	dir    string
	// client and config belong to userBench.
	client client.WithWatch
	config *rest.Config
	audit  *audit.Log

	processes []*process
	// controller is the system's controller; nil for the floor, which has none.
	controller *process
}

func startPlane(ctx context.Context, s *settings, sys *system) (*plane, error) {
	dir, err := os.MkdirTemp("", "t9k-perf-")
	if err != nil {
		return nil, err
	}
	p := &plane{dir: dir}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	if err := p.start(s, sys); err != nil {
		err = p.explain(err)
		p.stop()
		return nil, fmt.Errorf("starting a control plane: %w", err)
	}
	return p, nil
}

func (p *plane) start(s *settings, sys *system) error {
	tokens, err := p.tokens()
	if err != nil {
		return err
	}
	p.env, err = testenv.New(testenv.Options{
		Components:  []string{local.Etcd, local.APIServer, local.CRDs, local.Scheduler},
		AuditPolicy: audit.Policy("Metadata", userPeer),
		Args:        map[string][]string{local.APIServer: {"--token-auth-file=" + tokens}},
	})
	if err != nil {
		return err
	}
	p.audit = audit.Open(p.env.AuditLog)
	p.config = p.as(userBench)
	if p.client, err = newClient(p.config); err != nil {
		return err
	}
	if err := p.startNodes(s.nodes); err != nil {
		return err
	}
	if sys.start == nil {
		return nil
	}
	p.controller, err = sys.start(p, s)
	return err
}

// tokens writes the token file of all users and returns its path.
func (p *plane) tokens() (string, error) {
	path := filepath.Join(p.dir, "tokens.csv")
	var lines []string
	users := []string{userBench, userKWOK, userPeer}
	for i := range consoleViewers {
		users = append(users, viewer(i))
	}
	for _, user := range users {
		lines = append(lines, fmt.Sprintf("%s,%s,%s,system:masters", user, user, user))
	}
	return path, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600)
}

func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := batch.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := scheduling.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// as returns the configuration of a client of the user.
func (p *plane) as(user string) *rest.Config {
	c := rest.AnonymousClientConfig(p.env.Config)
	c.BearerToken, c.QPS, c.UserAgent = user, -1, user
	return c
}

// kubeconfig writes a kubeconfig of the user and returns its path.
func (p *plane) kubeconfig(user string) (string, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters[user] = &clientcmdapi.Cluster{Server: p.env.Config.Host, CertificateAuthorityData: p.env.Config.CAData}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: user}
	c.Contexts[user] = &clientcmdapi.Context{Cluster: user, AuthInfo: user, Namespace: namespace}
	c.CurrentContext = user
	path := filepath.Join(p.dir, user+".kubeconfig")
	return path, clientcmd.WriteToFile(*c, path)
}

// run starts a program of the control plane. If the program ends early, the measurement fails.
func (p *plane) run(name, program string, args []string, env ...string) (*process, error) {
	child, err := startProcess(p.dir, name, program, args, env)
	if err != nil {
		return nil, err
	}
	p.processes = append(p.processes, child)
	go func() {
		<-child.ended
		if !child.replaced.Load() {
			p.cancel(fmt.Errorf("%s has ended", name))
		}
	}()
	return child, nil
}

// restartController stops the system's controller and starts it again with the same arguments.
func (p *plane) restartController() error {
	old := p.controller
	old.replaced.Store(true)
	old.stop()
	var err error
	p.controller, err = p.run(old.name+"-again", old.cmd.Path, old.cmd.Args[1:], old.cmd.Env...)
	return err
}

// kwokConfig makes KWOK manage all nodes. startNodes adds stages with which pods run as soon as they are bound. The
// benchmark itself ends the pods, because with KWOK's default stages, pods of a Job would end at once.
const kwokConfig = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: true
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 4
  podsOnNodeSyncParallelism: 1
`

func (p *plane) startNodes(n int) error {
	kubeconfig, err := p.kubeconfig(userKWOK)
	if err != nil {
		return err
	}
	config := filepath.Join(p.dir, "kwok.yaml")
	documents := []string{kwokConfig, nodestages.DefaultNodeInit, podstages.DefaultPodReady, podstages.DefaultPodDelete}
	if err := os.WriteFile(config, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := p.run("kwok", self, []string{"kwok", "--kubeconfig", kubeconfig, "--config", config, "--v=WARN"}); err != nil {
		return err
	}
	for i := range n {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		if err := p.client.Create(p.ctx, node); err != nil {
			return err
		}
		// The control plane has no node controller, which would remove the taint of nodes that were not ready.
		if err := p.client.Patch(p.ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
			return err
		}
	}
	return p.awaitNodes(n)
}

func (p *plane) awaitNodes(n int) error {
	for {
		var nodes corev1.NodeList
		if err := p.client.List(p.ctx, &nodes); err != nil {
			return err
		}
		ready := 0
		for i := range nodes.Items {
			for _, c := range nodes.Items[i].Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready == n {
			return nil
		}
		if err := sleep(p.ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// explain adds to an error the reason why the control plane ended, if it has ended, and the end of each program's log.
func (p *plane) explain(err error) error {
	errs := []error{err, context.Cause(p.ctx)}
	for _, child := range p.processes {
		errs = append(errs, fmt.Errorf("log of %s: …%s", child.name, child.tail()))
	}
	return errors.Join(errs...)
}

func (p *plane) stop() {
	p.cancel(nil)
	for _, child := range p.processes {
		child.stop()
	}
	if p.env != nil {
		p.env.Stop()
	}
	os.RemoveAll(p.dir)
}
