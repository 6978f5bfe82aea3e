package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"tensorstack.dev/batch/internal/local/freebind"
)

// Server is the cluster's DNS server.
type Server struct {
	domain   string
	upstream *Upstream
	zone     *zone
	synced   []cache.InformerSynced // report whether the zone holds the initial objects
}

// NewServer returns a server that is authoritative for domain, such as "cluster.local", and forwards other questions to
// upstream.
func NewServer(domain string, upstream *Upstream) *Server {
	s := &Server{domain: strings.ToLower(domain), upstream: upstream, zone: newZone()}
	s.zone.set("", []record{{name: s.domain + "."}}) // the domain exists even if it is empty
	return s
}

// Watch keeps the server's records up to date with the Services and EndpointSlices of factory. The caller starts the
// factory.
func (s *Server) Watch(factory informers.SharedInformerFactory) error {
	services, err := factory.Core().V1().Services().Informer().AddEventHandler(handler(func(key string, service *corev1.Service) {
		s.zone.set("service/"+key, serviceRecords(service, s.domain))
	}, func(key string) { s.zone.set("service/"+key, nil) }))
	if err != nil {
		return fmt.Errorf("watching Services: %w", err)
	}
	slices, err := factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(handler(func(key string, slice *discoveryv1.EndpointSlice) {
		s.zone.set("slice/"+key, sliceRecords(slice, s.domain))
	}, func(key string) { s.zone.set("slice/"+key, nil) }))
	if err != nil {
		return fmt.Errorf("watching EndpointSlices: %w", err)
	}
	s.synced = []cache.InformerSynced{services.HasSynced, slices.HasSynced}
	return nil
}

// handler returns an event handler that calls set for added and updated objects and remove for deleted ones.
func handler[T any](set func(key string, object T), remove func(key string)) cache.ResourceEventHandler {
	changed := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			set(key, object.(T))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, object any) { changed(object) },
		DeleteFunc: func(object any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				remove(key)
			}
		},
	}
}

// Serve answers on an address over UDP and TCP until ctx ends. The machine may get the address later. Questions wait
// until the zone is filled, because an earlier answer would deny names that exist.
func (s *Server) Serve(ctx context.Context, address string) error {
	listen := freebind.Config()
	packets, err := listen.ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("listening for DNS: %w", err)
	}
	streams, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return errors.Join(fmt.Errorf("listening for DNS: %w", err), packets.Close())
	}
	servers := []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: streams, Handler: s}}
	stop := context.AfterFunc(ctx, func() {
		packets.Close()
		streams.Close()
	})
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return nil
	}
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, server := range servers {
		wg.Go(func() { errs[i] = server.ActivateAndServe() })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving DNS: %w", errors.Join(errs...))
}

// ServeDNS answers one message. Over UDP, it truncates the reply to the size that the client accepts.
func (s *Server) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	_, overTCP := w.RemoteAddr().(*net.TCPAddr)
	reply := s.answer(request, overTCP)
	if !overTCP {
		size := dns.MinMsgSize
		if option := request.IsEdns0(); option != nil {
			size = max(size, int(option.UDPSize()))
		}
		reply.Truncate(size)
	}
	_ = w.WriteMsg(reply) // fails only if the client has disconnected
}

// answer returns the reply to a message: from the zone, or from the upstream for a name that is neither in the zone nor
// in the domain. It returns the code NOTIMP for a message that is not a query with exactly one question.
func (s *Server) answer(request *dns.Msg, overTCP bool) *dns.Msg {
	reply := new(dns.Msg).SetReply(request)
	if len(request.Question) != 1 || request.Opcode != dns.OpcodeQuery {
		return reply.SetRcode(request, dns.RcodeNotImplemented)
	}
	q := request.Question[0]
	name := strings.ToLower(q.Name)
	answers, exists := s.zone.lookup(q.Name, q.Qtype)
	if !exists && !s.owns(name) {
		return s.upstream.ask(request, overTCP)
	}
	reply.Authoritative, reply.RecursionAvailable = true, true
	if option := request.IsEdns0(); option != nil {
		reply.SetEdns0(option.UDPSize(), false)
	}
	reply.Answer = s.resolveAlias(answers, q, overTCP)
	if !exists {
		reply.Rcode = dns.RcodeNameError
	}
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{s.authority()}
	}
	return reply
}

// owns reports whether a name is in the server's domain, for which the server is authoritative.
func (s *Server) owns(name string) bool { return dns.IsSubDomain(s.domain+".", name) }

// resolveAlias appends the records of the target to an answer that is a CNAME record. It returns other answers
// unchanged, and every answer to a question for the type CNAME or ANY.
func (s *Server) resolveAlias(answers []dns.RR, q dns.Question, overTCP bool) []dns.RR {
	if len(answers) != 1 || q.Qtype == dns.TypeCNAME || q.Qtype == dns.TypeANY {
		return answers
	}
	alias, ok := answers[0].(*dns.CNAME)
	if !ok {
		return answers
	}
	if target, exists := s.zone.lookup(alias.Target, q.Qtype); exists || s.owns(strings.ToLower(alias.Target)) {
		return append(answers, target...)
	}
	return append(answers, s.upstream.ask(new(dns.Msg).SetQuestion(alias.Target, q.Qtype), overTCP).Answer...)
}

// authority returns the SOA record of a negative answer. It contains the time for which clients may cache the answer.
func (s *Server) authority() dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: s.domain + ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  "ns.dns." + s.domain + ".", Mbox: "hostmaster." + s.domain + ".",
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}
