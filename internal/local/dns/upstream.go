package dns

import (
	"net"
	"time"

	"github.com/miekg/dns"
)

// upstreamTimeout is how long one upstream name server may take to answer.
const upstreamTimeout = 2 * time.Second

// Upstream forwards questions to other name servers.
type Upstream struct {
	unix      bool
	addresses func() []string
}

// ResolvConf returns an upstream that asks the name servers in a file like /etc/resolv.conf. It reads the file for each
// question, because the machine's network can change while the cluster runs. A file that cannot be read counts as
// empty.
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

// Socket returns an upstream that asks a server at a Unix socket, such as an Upstream in another network namespace.
func Socket(path string) *Upstream {
	return &Upstream{unix: true, addresses: func() []string { return []string{path} }}
}

// ask forwards a question to one server after the other and returns the first answer, or a reply with SERVFAIL if no
// server answers.
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

// ServeDNS answers one message with the upstream's reply. If the reply over UDP is truncated, it asks again over TCP.
func (u *Upstream) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	reply := u.ask(request, false)
	if reply.Truncated {
		reply = u.ask(request, true)
	}
	_ = w.WriteMsg(reply) // fails only if the client has disconnected
}

// Serve answers on a stream listener until the listener is closed.
func (u *Upstream) Serve(l net.Listener) error {
	return (&dns.Server{Listener: l, Handler: u}).ActivateAndServe()
}
