package dns

import (
	"net"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// serviceRecords returns the records of a Service: its addresses and named ports, or the alias of an ExternalName
// Service. A record without data makes the name of a headless Service exist.
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

// sliceRecords returns the records of the ready endpoints of a headless Service. The name of each endpoint is derived
// from its hostname or its address. For other Services, sliceRecords returns nothing.
func sliceRecords(s *discoveryv1.EndpointSlice, domain string) []record {
	if _, headless := s.Labels[corev1.IsHeadlessService]; !headless {
		return nil
	}
	service := serviceName(s.Labels[discoveryv1.LabelServiceName], s.Namespace, domain)
	var records []record
	for _, e := range s.Endpoints {
		// An unknown state counts as ready. With publishNotReadyAddresses, the slice marks every endpoint as ready.
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, address := range e.Addresses {
			host := endpointHost(e.Hostname, address) + "." + service
			records = append(records, addressRecords(host, address)...)
			records = append(records, hostRecords(service, address)...)
			for _, p := range s.Ports {
				if p.Name != nil && *p.Name != "" && p.Port != nil && p.Protocol != nil {
					records = append(records, portRecord(service, *p.Name, string(*p.Protocol), host, uint16(*p.Port)))
				}
			}
		}
	}
	return records
}

// serviceName returns the absolute domain name of a Service.
func serviceName(name, namespace, domain string) string {
	return strings.ToLower(name + "." + namespace + ".svc." + domain + ".")
}

// endpointHost returns the first label of an endpoint's domain name.
func endpointHost(hostname *string, address string) string {
	if hostname != nil && *hostname != "" {
		return strings.ToLower(*hostname)
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(address)
}

// addressRecords returns the records that map a name to an address and the address back to the name.
func addressRecords(name, address string) []record {
	records := hostRecords(name, address)
	if reverse, err := dns.ReverseAddr(address); err == nil && records != nil {
		records = append(records, record{reverse, &dns.PTR{Ptr: name}})
	}
	return records
}

// hostRecords returns the record that maps a name to an address, or nothing if the address is not an IP address, such
// as the ClusterIP "None" of a headless Service.
func hostRecords(name, address string) []record {
	ip := net.ParseIP(address)
	switch {
	case ip == nil:
		return nil
	case ip.To4() != nil:
		return []record{{name, &dns.A{A: ip}}}
	}
	return []record{{name, &dns.AAAA{AAAA: ip}}}
}

// portRecord returns the SRV record of a named port.
func portRecord(service, port, protocol, target string, number uint16) record {
	name := strings.ToLower("_" + port + "._" + protocol + "." + service)
	return record{name, &dns.SRV{Weight: 100, Port: number, Target: target}}
}
