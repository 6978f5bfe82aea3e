package dns

import (
	"net"
	"time"

	"github.com/miekg/dns"
)

// upstreamTimeout is how long another name server may take.
const upstreamTimeout = 2 * time.Second

// Upstream is where questions go that are not about the cluster.
type Upstream struct {
	unix      bool
	addresses func() []string
}

// ResolvConf asks the name servers that a file like /etc/resolv.conf lists at the time: networks change while a
// cluster runs. A file that cannot be read lists none.
func ResolvConf(path string) *Upstream {
	return &Upstream{addresses: func() []string {
		config, err := dns.ClientConfigFromFile(path)
		if err != nil {
			return nil
		}
		var addresses []string
		for _, server := range config.Servers {
			addresses = append(addresses, net.JoinHostPort(server, config.Port))
		}
		return addresses
	}}
}

// Socket asks what serves at a Unix socket: another network namespace's Upstream.
func Socket(path string) *Upstream {
	return &Upstream{unix: true, addresses: func() []string { return []string{path} }}
}

// ask passes a question on to the first server that answers.
func (u *Upstream) ask(request *dns.Msg, overTCP bool) *dns.Msg {
	client := &dns.Client{Timeout: upstreamTimeout, UDPSize: dns.MaxMsgSize}
	switch {
	case u.unix:
		client.Net = "unix"
	case overTCP:
		client.Net = "tcp"
	}
	for _, address := range u.addresses() {
		reply, _, err := client.Exchange(request.Copy(), address)
		if err == nil {
			reply.Id = request.Id
			return reply
		}
	}
	return new(dns.Msg).SetRcode(request, dns.RcodeServerFailure)
}

// ServeDNS answers one message out of what the upstream says, in full length.
func (u *Upstream) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	reply := u.ask(request, false)
	if reply.Truncated {
		reply = u.ask(request, true)
	}
	_ = w.WriteMsg(reply) // the client went away
}

// Serve answers at a listener of streams until it is closed.
func (u *Upstream) Serve(l net.Listener) error {
	return (&dns.Server{Listener: l, Handler: u}).ActivateAndServe()
}
