// Package config carries manifests, so that programs can install and check them.
package config

import (
	"embed"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// CRDs holds the generated CustomResourceDefinitions as YAML files under crd/.
//
//go:embed crd/*.yaml
var CRDs embed.FS

//go:embed operator/namespace.yaml rbac/role.yaml webhook/*.yaml scheduler/queue.yaml scheduler/role.yaml scheduler/admission_*.yaml console/role.yaml users/*.yaml
var files embed.FS

// Namespace is that of the operator.
const Namespace = "t9k-system"

// Webhook lists what the admission webhook of an operator needs that runs outside of the cluster: the operator's
// namespace, the Secret of its certificate, and the configurations, by which the API server calls address, a host and
// port.
func Webhook(address string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range []string{"operator/namespace.yaml", "webhook/secret.yaml", "webhook/configuration.yaml", "webhook/defaults.yaml"} {
		data, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &o.Object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if err := callAt(o, address); err != nil {
			return nil, fmt.Errorf("changing %s: %w", file, err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// callAt has the webhooks of a configuration, if it is one, called at an address and not by their Service.
func callAt(configuration *unstructured.Unstructured, address string) error {
	hooks, found, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil || !found {
		return err
	}
	for _, h := range hooks {
		hook := h.(map[string]any)
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		hook["clientConfig"] = map[string]any{"url": "https://" + address + path}
	}
	return unstructured.SetNestedSlice(configuration.Object, hooks, "webhooks")
}

// DefaultQueue is the queue that every cluster has from the start.
func DefaultQueue() (*unstructured.Unstructured, error) { return read("scheduler/queue.yaml") }

// admissionRules are the rules of queues, each followed by what binds it.
var admissionRules = []string{"queues", "queues_binding", "queues_pods_binding", "labels", "labels_binding", "pods", "pods_binding",
	"requested_by", "requested_by_binding", "noted", "noted_binding", "require_queue", "require_queue_binding", "default_queue", "default_queue_binding"}

// QueueAdmission lists the rules of who may use a queue, that this is noted, and that pods stay in theirs.
func QueueAdmission() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range admissionRules {
		o, err := read("scheduler/admission_" + name + ".yaml")
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// UserRoles lists the roles of people: parts of the cluster roles view and edit, and the roles of those who see, use
// and manage queues, and of those who read metrics.
func UserRoles() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range []string{"view", "edit", "queue_viewer", "queue_user", "queue_manager", "metrics_reader"} {
		o, err := read("users/" + name + ".yaml")
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// SchedulerClusterRole is the role that the scheduler has beside those of every scheduler.
func SchedulerClusterRole() (*unstructured.Unstructured, error) { return read("scheduler/role.yaml") }

// SchedulerRole lists what lets a scheduler of this user name follow groups and queues.
func SchedulerRole(user string) ([]*unstructured.Unstructured, error) {
	role, err := SchedulerClusterRole()
	if err != nil {
		return nil, err
	}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": role.GetAPIVersion(), "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": role.GetName() + "-user"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": role.GetKind(), "name": role.GetName()},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}}
	return []*unstructured.Unstructured{role, binding}, nil
}

// ConsoleClusterRole is what the console of an installation may do. What it needs to archive logs is apart.
func ConsoleClusterRole() (*unstructured.Unstructured, error) { return read("console/role.yaml") }

// OperatorRoles lists the roles of the operator: ClusterRoles and Roles in its namespace.
func OperatorRoles() ([]*unstructured.Unstructured, error) {
	var roles []*unstructured.Unstructured
	for _, file := range []string{"rbac/role.yaml", "webhook/rbac.yaml", "webhook/certificate_rbac.yaml"} {
		data, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, text := range strings.Split("\n"+string(data), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
				return nil, fmt.Errorf("reading %s: %w", file, err)
			}
			if kind := o.GetKind(); kind == "Role" || kind == "ClusterRole" {
				roles = append(roles, o)
			}
		}
	}
	return roles, nil
}

func read(file string) (*unstructured.Unstructured, error) {
	data, err := files.ReadFile(file)
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &o.Object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return o, nil
}
