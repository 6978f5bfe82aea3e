// Package dns is the cluster's name server. It answers for Services and their endpoints according to the Kubernetes DNS
// specification (v1.1), and forwards questions about names outside the cluster's domain to the machine's own name
// servers. It has no records for pods that are not endpoints of a Service. Start reading at Server.
package dns

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// ttl is how long an answer may be cached, in seconds. It is short because endpoints change often and a question costs
// little.
const ttl = 1

// record is a DNS record of the cluster.
type record struct {
	name string // absolute and in lower case
	data dns.RR // without a header, which lookup adds; nil for a record that only makes its name exist
}

// zone holds the records of the cluster by name. The owner of a record is the object that the record is derived from.
// All records of one owner are replaced together.
type zone struct {
	mu     sync.RWMutex
	owners map[string][]record
	names  map[string]*node
}

// node is a name in the zone.
type node struct {
	records []ownedRecord
	// below counts the records at the name and below it. The name exists while the count is positive.
	below int
}

// ownedRecord is the data of a record and its owner.
type ownedRecord struct {
	owner string
	data  dns.RR
}

// newZone returns an empty zone.
func newZone() *zone {
	return &zone{owners: map[string][]record{}, names: map[string]*node{}}
}

// set replaces the records of an owner. An owner without records is deleted.
func (z *zone) set(owner string, records []record) {
	z.mu.Lock()
	defer z.mu.Unlock()
	swept := map[string]bool{} // a Service with many endpoints has many records at one name
	for _, r := range z.owners[owner] {
		if !swept[r.name] {
			swept[r.name] = true
			n := z.names[r.name]
			n.records = slices.DeleteFunc(n.records, func(o ownedRecord) bool { return o.owner == owner })
		}
		z.count(r.name, -1)
	}
	if len(records) == 0 {
		delete(z.owners, owner)
		return
	}
	z.owners[owner] = records
	for _, r := range records {
		z.count(r.name, 1)
		if r.data != nil {
			n := z.names[r.name]
			n.records = append(n.records, ownedRecord{owner, r.data})
		}
	}
}

// count adds change to the number of records at or below name, for name and each of its parent domains.
func (z *zone) count(name string, change int) {
	for ; name != ""; name = parent(name) {
		n := z.names[name]
		if n == nil {
			n = &node{}
			z.names[name] = n
		}
		if n.below += change; n.below == 0 {
			delete(z.names, name)
		}
	}
}

// parent returns the name without its first label.
func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}

// lookup returns the records of a name with the given type, or the name's CNAME record. For the type ANY, it returns
// all records of the name. Their order is random, so that clients that use the first record are spread over all
// records. exists reports whether there are records of any type at the name or below it.
func (z *zone) lookup(name string, kind uint16) (answers []dns.RR, exists bool) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	n := z.names[strings.ToLower(name)]
	if n == nil {
		return nil, false
	}
	for _, r := range n.records {
		if t := typeOf(r.data); t == kind || t == dns.TypeCNAME || kind == dns.TypeANY {
			answer := dns.Copy(r.data)
			*answer.Header() = dns.RR_Header{Name: name, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
			answers = append(answers, answer)
		}
	}
	rand.Shuffle(len(answers), func(i, j int) { answers[i], answers[j] = answers[j], answers[i] })
	return answers, true
}

// typeOf returns the DNS type of a record's data.
func typeOf(data dns.RR) uint16 {
	switch data.(type) {
	case *dns.A:
		return dns.TypeA
	case *dns.AAAA:
		return dns.TypeAAAA
	case *dns.SRV:
		return dns.TypeSRV
	case *dns.PTR:
		return dns.TypePTR
	case *dns.CNAME:
		return dns.TypeCNAME
	}
	return dns.TypeNone
}
