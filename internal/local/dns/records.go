package dns

import (
	"net"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// serviceRecords are those of a Service itself: its address, or for a headless one only that its name exists.
func serviceRecords(s *corev1.Service, domain string) []record {
	name := serviceName(s.Name, s.Namespace, domain)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return []record{{name, &dns.CNAME{Target: dns.Fqdn(s.Spec.ExternalName)}}}
	}
	records := []record{{name: name}}
	for _, address := range s.Spec.ClusterIPs {
		records = append(records, addressRecords(name, address)...)
	}
	if len(records) == 1 {
		return records
	}
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			records = append(records, portRecord(name, p.Name, string(p.Protocol), name, uint16(p.Port)))
		}
	}
	return records
}

// sliceRecords are those of the endpoints of a headless Service: each has a name of its own, by its hostname or else
// its address. The endpoints of other Services have no names.
func sliceRecords(s *discoveryv1.EndpointSlice, domain string) []record {
	if _, headless := s.Labels[corev1.IsHeadlessService]; !headless {
		return nil
	}
	service := serviceName(s.Labels[discoveryv1.LabelServiceName], s.Namespace, domain)
	var records []record
	for _, e := range s.Endpoints {
		// An unknown state counts as ready; that of pods whose Service publishes them early is given as ready.
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, address := range e.Addresses {
			host := endpointHost(e.Hostname, address) + "." + service
			records = append(records, addressRecords(host, address)...)
			records = append(records, forward(service, address)...)
			for _, p := range s.Ports {
				if p.Name != nil && *p.Name != "" && p.Port != nil && p.Protocol != nil {
					records = append(records, portRecord(service, *p.Name, string(*p.Protocol), host, uint16(*p.Port)))
				}
			}
		}
	}
	return records
}

func serviceName(name, namespace, domain string) string {
	return strings.ToLower(name + "." + namespace + ".svc." + domain + ".")
}

func endpointHost(hostname *string, address string) string {
	if hostname != nil && *hostname != "" {
		return strings.ToLower(*hostname)
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(address)
}

// addressRecords lead from a name to an address and back.
func addressRecords(name, address string) []record {
	records := forward(name, address)
	if reverse, err := dns.ReverseAddr(address); err == nil && records != nil {
		records = append(records, record{reverse, &dns.PTR{Ptr: name}})
	}
	return records
}

// forward leads from a name to an address; "None" is not one.
func forward(name, address string) []record {
	ip := net.ParseIP(address)
	switch {
	case ip == nil:
		return nil
	case ip.To4() != nil:
		return []record{{name, &dns.A{A: ip}}}
	}
	return []record{{name, &dns.AAAA{AAAA: ip}}}
}

func portRecord(service, port, protocol, target string, number uint16) record {
	name := strings.ToLower("_" + port + "._" + protocol + "." + service)
	return record{name, &dns.SRV{Weight: 100, Port: number, Target: target}}
}
