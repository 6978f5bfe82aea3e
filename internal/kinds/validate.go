package kinds

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"tensorstack.dev/batch/internal/engine"
)

// generatedSuffix is the number of characters that the API server adds to metadata.generateName.
const generatedSuffix = 5

// jobName checks the job's name, which is that of its Service too and the beginning of every pod's name.
func (l *lowering) jobName(o Object) {
	name, path := o.GetName(), field.NewPath("metadata", "name")
	if name == "" && o.GetGenerateName() != "" {
		name, path = o.GetGenerateName()+strings.Repeat("x", generatedSuffix), field.NewPath("metadata", "generateName")
	}
	l.job.Name, l.namePath = name, path
	switch {
	case name == "":
		l.required(path, "give the job a name")
	case len(validation.IsDNS1123Label(name)) > 0 && len(name) <= engine.MaxNameLength:
		l.invalid(path, name, "a job's name begins the host names of its pods: use lower-case letters, digits and '-' only, with a "+
			"letter or digit at both ends")
	}
}

// roleName checks the name of a role that is about to be added.
func (l *lowering) roleName(role string, path *field.Path) {
	switch {
	case role == "":
		l.required(path, "give the role a name, such as worker")
		l.senseless = true
	case len(validation.IsDNS1123Label(role)) > 0:
		l.invalid(path, role, "a role's name is a part of its pods' host names: use up to 63 lower-case letters, digits and '-', with a "+
			"letter or digit at both ends")
	case roleOf(l.job, role) != nil:
		l.invalid(path, role, "another role has this name: give each role its own")
		l.senseless = true
	}
}

// replicaNames checks the longest name of a pod that the job can come to have.
func (l *lowering) replicaNames() {
	longest := ""
	for i := range l.job.Roles {
		r := &l.job.Roles[i]
		most := r.Replicas
		if l.job.Elastic != nil {
			most = l.job.Elastic.Max
		}
		if name := l.job.PodName(r.Type, max(most-1, 0)); len(name) > len(longest) {
			longest = name
		}
	}
	if over := len(longest) - engine.MaxNameLength; over > 0 {
		l.invalid(l.namePath, l.job.Name, fmt.Sprintf("the pod %q would have a name of %d characters, and the limit "+
			"is %d: shorten the name of the job or of the role by %d", longest, len(longest), engine.MaxNameLength, over))
	}
}

// queueName checks the name of a queue, which the job's pods carry as a label.
func (l *lowering) queueName(queue string, path *field.Path) {
	switch {
	case queue == "":
		l.required(path, "name the queue that the job waits in, such as default")
	case len(queue) > validation.LabelValueMaxLength:
		l.invalid(path, queue, fmt.Sprintf("the name has %d characters, and the limit is %d, as it is a label of the pods: use a queue of a "+
			"shorter name", len(queue), validation.LabelValueMaxLength))
	case len(validation.IsDNS1123Subdomain(queue)) > 0:
		l.invalid(path, queue, "no queue has such a name: use lower-case letters, digits, '-' and '.', with a letter or digit at both ends")
	}
}

// servicePorts checks what the API server would refuse in the job's Service.
func (l *lowering) servicePorts(ports []corev1.ServicePort, path *field.Path) {
	l.atMost(maxPorts, len(ports), "ports", path)
	names, numbers := map[string]bool{}, map[string]bool{}
	for i := range ports {
		p, at := &ports[i], path.Index(i)
		if p.Port < 1 || p.Port > 65535 {
			l.invalid(at.Child("port"), p.Port, "a port is a number from 1 to 65535: choose one of these")
		}
		l.servicePortName(p.Name, len(ports), names, at.Child("name"))
		switch p.Protocol {
		case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		default:
			l.unsupported(at.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		}
		if p.NodePort != 0 {
			l.invalid(at.Child("nodePort"), p.NodePort, "the job's Service is headless and has no ports on nodes: leave nodePort out")
		}
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		number := fmt.Sprintf("%d/%s", p.Port, protocol)
		if numbers[number] {
			l.invalid(at.Child("port"), p.Port, "another port has this number and protocol: list each once")
		}
		numbers[number] = true
	}
}

func (l *lowering) servicePortName(name string, ports int, taken map[string]bool, path *field.Path) {
	switch {
	case name == "" && ports > 1:
		l.required(path, "with more than one port, each has a name: give it one, such as http")
	case name == "":
	case len(validation.IsDNS1123Label(name)) > 0:
		l.invalid(path, name, "not a port's name: use up to 63 lower-case letters, digits and '-', with a letter or digit at both ends")
	case taken[name]:
		l.invalid(path, name, "another port has this name: give each port its own")
	}
	taken[name] = true
}
