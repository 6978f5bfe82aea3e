package kinds

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// template checks a pod template for errors that the API server would report only when the pods are created. The check
// is not complete: the operator reports any other error on the job.
func (v *validator) template(t *corev1.PodTemplateSpec, path *field.Path) {
	meta := path.Child("metadata")
	v.errs = append(v.errs, metavalidation.ValidateLabels(t.Labels, meta.Child("labels"))...)
	v.errs = append(v.errs, apivalidation.ValidateAnnotations(t.Annotations, meta.Child("annotations"))...)

	path = path.Child("spec")
	if len(t.Spec.Containers) == 0 {
		v.required(path.Child("containers"), "a pod has at least one container: add one with name, image and command")
	}
	if len(t.Spec.EphemeralContainers) > 0 {
		v.errs = append(v.errs, field.Forbidden(path.Child("ephemeralContainers"),
			"only a live pod takes these: leave them out, and use kubectl debug"))
	}
	volumes := v.volumes(t.Spec.Volumes, path.Child("volumes"))
	names := make(map[string]bool, len(t.Spec.Containers)+len(t.Spec.InitContainers))
	for i := range t.Spec.InitContainers {
		v.container(&t.Spec.InitContainers[i], names, volumes, path.Child("initContainers").Index(i))
	}
	for i := range t.Spec.Containers {
		v.container(&t.Spec.Containers[i], names, volumes, path.Child("containers").Index(i))
	}
}

func (v *validator) volumes(volumes []corev1.Volume, path *field.Path) map[string]bool {
	names := make(map[string]bool, len(volumes))
	for i := range volumes {
		v.localName(volumes[i].Name, "volume", names, path.Index(i).Child("name"))
	}
	return names
}

// localName validates a name that must not be among taken, and adds it to taken. of says what has the name, for
// messages.
func (v *validator) localName(name, of string, taken map[string]bool, path *field.Path) {
	switch {
	case name == "":
		v.required(path, "give the "+of+" a name")
	case len(validation.IsDNS1123Label(name)) > 0:
		v.invalid(path, name, "not a "+of+"'s name: use up to 63 lower-case letters, digits and '-', with a letter or digit at both ends")
	case taken[name]:
		v.invalid(path, name, "another "+of+" of the pod has this name: give each its own")
	}
	taken[name] = true
}

func (v *validator) container(c *corev1.Container, names, volumes map[string]bool, path *field.Path) {
	v.localName(c.Name, "container", names, path.Child("name"))
	if c.Image == "" {
		v.required(path.Child("image"), "name the image that the container runs")
	}
	for i := range c.Env {
		e, at := &c.Env[i], path.Child("env").Index(i)
		if e.Name == "" {
			v.required(at.Child("name"), "give the environment variable a name")
		}
		if e.Value != "" && e.ValueFrom != nil {
			v.invalid(at.Child("valueFrom"), e.Name, "the variable has a value too: keep one of value and valueFrom")
		}
	}
	for i := range c.Ports {
		if p := c.Ports[i].ContainerPort; p < 1 || p > 65535 {
			v.invalid(path.Child("ports").Index(i).Child("containerPort"), p, "a port is a number from 1 to 65535: choose one of these")
		}
	}
	v.mounts(c.VolumeMounts, volumes, path.Child("volumeMounts"))
	v.resources(&c.Resources, path.Child("resources"))
}

func (v *validator) mounts(mounts []corev1.VolumeMount, volumes map[string]bool, path *field.Path) {
	taken := make(map[string]bool, len(mounts))
	for i := range mounts {
		m, at := &mounts[i], path.Index(i)
		if !volumes[m.Name] {
			v.invalid(at.Child("name"), m.Name, "the pod has no volume of this name: add it to the volumes of the template")
		}
		if m.MountPath == "" {
			v.required(at.Child("mountPath"), "say where in the container the volume appears, such as /data")
		} else if taken[m.MountPath] {
			v.invalid(at.Child("mountPath"), m.MountPath, "another volume is mounted here: give each its own path")
		}
		taken[m.MountPath] = true
	}
}

func (v *validator) resources(r *corev1.ResourceRequirements, path *field.Path) {
	for _, name := range sortedKeys(r.Requests) {
		request, at := r.Requests[name], path.Child("requests").Key(string(name))
		limit, limited := r.Limits[name]
		switch {
		case request.Sign() < 0:
			v.invalid(at, request.String(), "a request is 0 or more: ask for what the container needs")
		case !limited && isDevice(name):
			v.required(path.Child("limits").Key(string(name)), fmt.Sprintf("a device is never shared: give a limit of %s too", request.String()))
		case !limited:
		case request.Cmp(limit) > 0:
			v.invalid(at, request.String(), fmt.Sprintf("more than the limit of %s: lower the request or raise the limit", limit.String()))
		case request.Cmp(limit) < 0 && isDevice(name):
			v.invalid(at, request.String(), fmt.Sprintf("a device is never shared: ask for as many as the limit says, which is %s", limit.String()))
		}
	}
}

// isDevice reports whether a resource cannot be overcommitted: an extended resource, such as nvidia.com/gpu.
func isDevice(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
