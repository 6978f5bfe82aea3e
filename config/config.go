// Package config embeds manifests of this folder, which programs install and tests check.
package config

import (
	"embed"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// CRDs holds the generated CustomResourceDefinitions, as YAML files in crd.
//
//go:embed crd/*.yaml
var CRDs embed.FS

//go:embed operator/namespace.yaml rbac/role.yaml webhook/*.yaml scheduler/queue.yaml scheduler/role.yaml scheduler/admission_*.yaml console/role.yaml users/*.yaml
var files embed.FS

// Namespace is the namespace in which TensorStack Batch is installed by default.
const Namespace = "t9k-system"

// Webhook returns the objects that an operator outside of the cluster needs for its webhooks: the namespace, the Secret
// of its certificate, and webhook configurations that call https://ADDRESS. The address is HOST:PORT.
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

// callAt replaces the Service in each webhook of a webhook configuration by a URL with the address. It does not change
// other objects.
func callAt(o *unstructured.Unstructured, address string) error {
	hooks, found, err := unstructured.NestedSlice(o.Object, "webhooks")
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
	return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

// DefaultQueue returns the Queue "default", which the operator creates if it does not exist.
func DefaultQueue() (*unstructured.Unstructured, error) { return read("scheduler/queue.yaml") }

// admissionFiles names the files scheduler/admission_NAME.yaml with the admission policies of queues. The bindings of a
// policy follow the policy.
var admissionFiles = []string{"queues", "queues_binding", "queues_pods_binding", "labels", "labels_binding", "pods", "pods_binding",
	"requested_by", "requested_by_binding", "noted", "noted_binding", "require_queue", "require_queue_binding", "default_queue", "default_queue_binding"}

// QueueAdmission returns the admission policies, with their bindings, that require or set the queue of jobs in labelled
// namespaces, check who may use a queue, record the requester, and keep pods in their queue.
func QueueAdmission() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range admissionFiles {
		o, err := read("scheduler/admission_" + name + ".yaml")
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// UserRoles returns the roles of users: additions to the ClusterRoles view and edit, and roles to view, use and manage
// queues and to read metrics.
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

// SchedulerClusterRole returns the ClusterRole that the t9k-scheduler needs in addition to the roles of kube-scheduler.
func SchedulerClusterRole() (*unstructured.Unstructured, error) { return read("scheduler/role.yaml") }

// SchedulerRole returns the role of SchedulerClusterRole and a ClusterRoleBinding that grants the role to a user, for a
// scheduler outside of the cluster.
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

// ConsoleClusterRole returns the ClusterRole of an installed console, without the permission to read logs for the
// archive.
func ConsoleClusterRole() (*unstructured.Unstructured, error) { return read("console/role.yaml") }

// OperatorRoles returns the roles of the operator: ClusterRoles, and Roles in its namespace.
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
