// Package dns is the cluster's name server: it answers for Services and their endpoints as the Kubernetes DNS
// specification (v1.1) says, and forwards every other question to the machine's own name servers.
package dns

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// ttl is the time, in seconds, for which an answer may be kept. Pods come and go, and asking is cheap.
const ttl = 1

// record is one that the cluster's own zones hold.
type record struct {
	name string // absolute and in lower case
	data dns.RR // its header is filled in when it is given as an answer
}

// zone holds the records of the cluster by name. Each belongs to an owner, the object out of which it was made, and
// is replaced together with the owner's others.
type zone struct {
	mu     sync.RWMutex
	owners map[string][]record
	names  map[string]*node
}

// node is what a zone knows of a name.
type node struct {
	records []ownedRecord
	// below counts the records at the name and at those under it: as long as there are any, the name exists.
	below int
}

type ownedRecord struct {
	owner string
	data  dns.RR
}

func newZone() *zone {
	return &zone{owners: map[string][]record{}, names: map[string]*node{}}
}

// set replaces the records of an owner; with none, the owner is forgotten.
func (z *zone) set(owner string, records []record) {
	z.mu.Lock()
	defer z.mu.Unlock()
	swept := map[string]bool{} // a Service of many endpoints has as many records at one name
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

// count adds to the number of records at or below name, for name itself and each domain that it is in.
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

func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}

// lookup returns the records of a name and type, in random order so that clients which take the first spread. The
// name exists if there are records of any type at it or below it.
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
