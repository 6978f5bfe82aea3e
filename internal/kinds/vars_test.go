package kinds

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/engine"
)

// trainJob returns a job with 3 workers, 2 parameter servers, a role "port" with one replica, a role "idle" without
// replicas, and a service with the port http and one without a name.
func trainJob() *engine.Job {
	return &engine.Job{
		Name:    "train",
		Roles:   []engine.Role{{Type: "worker", Replicas: 3}, {Type: "ps", Replicas: 2}, {Type: "port", Replicas: 1}, {Type: "idle"}},
		Service: &engine.Service{Ports: []corev1.ServicePort{{Name: "http", Port: 2222}, {Port: 1}}},
	}
}

func TestVariablesExpand(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no variable", "plain", "plain"},
		{"the role", "$(type)", "worker"},
		{"the rank", "--rank=$(rank)", "--rank=2"},
		{"the rank twice", "$(rank)$(rank)", "22"},
		{"the number of replicas of a role", "$(replicas[worker])+$(replicas[ps])", "3+2"},
		{"of a role without any", "$(replicas[idle])", "0"},
		{"a host and a port", "$(service.worker[0].host):$(service.port[http])", "train-worker-0:2222"},
		{"a host of another role", "$(service.ps[1].host)", "train-ps-1"},
		{"a rank with zeros", "$(service.ps[01].host)", "train-ps-1"},
		{"a role that is called port", "$(service.port[0].host)", "train-port-0"},
		{"all of it in JSON", `{"task":{"type":"$(type)","index":$(rank)}}`, `{"task":{"type":"worker","index":2}}`},

		{"Kubernetes' own variables", "$(HOME)/$(rank)/$(POD_IP)", "$(HOME)/2/$(POD_IP)"},
		{"an escaped variable", "$$(rank) $(rank)", "$$(rank) 2"},
		{"an escape before a variable", "$$$(rank)", "$$2"},
		{"two escapes", "$$$$(rank)", "$$$$(rank)"},
		{"dollars of a shell", "$HOME $1 $ $(rank) $", "$HOME $1 $ 2 $"},
		{"a shell's own substitution", "$(hostname -f) $(rank)", "$(hostname -f) 2"},
		{"not closed", "$(rank $(", "$(rank $("},
		{"a variable after one that is not closed is within it, as in Kubernetes", "$(rank $(rank)", "$(rank $(rank)"},
		{"nothing in the brackets", "$()", "$()"},
		{"in capitals", "$(RANK) $(Type)", "$(RANK) $(Type)"},
		{"with spaces", "$( rank )", "$( rank )"},
		{"something else of a service", "$(service.worker[0].ip) $(service.name) $(service.)", "$(service.worker[0].ip) $(service.name) $(service.)"},
		{"something like replicas", "$(replicas) $(replicas.worker) $(replicas[worker].n)", "$(replicas) $(replicas.worker) $(replicas[worker].n)"},
		{"something like a port", "$(service.port.http) $(service.ports[http])", "$(service.port.http) $(service.ports[http])"},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := trainJob()
			parts, bad := vocabulary{job, &job.Roles[0]}.compile(c.text)
			if len(bad) > 0 {
				t.Fatalf("refused: %v", bad)
			}
			if got := strings.Join(parts, "2"); got != c.want {
				t.Errorf("%s became %s, want %s", c.text, got, c.want)
			}
		})
	}
}

func TestUnknownVariablesAreErrors(t *testing.T) {
	for _, c := range []struct {
		name, text string
		change     func(*engine.Job)
		want       []badReference
	}{
		{name: "unknown role", text: "$(replicas[w])", want: []badReference{
			{"$(replicas[w])", `the job has no role "w": use one of "worker", "ps", "port", "idle"`}}},
		{name: "no role at all", text: "$(replicas[])", want: []badReference{
			{"$(replicas[])", `the job has no role "": use one of "worker", "ps", "port", "idle"`}}},
		{name: "rank out of range", text: "$(service.ps[2].host)", want: []badReference{
			{"$(service.ps[2].host)", `role "ps" has 2 replicas: use a rank from 0 to 1`}}},
		{name: "rank out of the range of one", text: "$(service.port[1].host)", want: []badReference{
			{"$(service.port[1].host)", `role "port" has one replica: use rank 0`}}},
		{name: "negative rank", text: "$(service.ps[-1].host)", want: []badReference{
			{"$(service.ps[-1].host)", `"-1" is not a rank: write a number such as 0`}}},
		{name: "no rank", text: "$(service.ps[].host)", want: []badReference{
			{"$(service.ps[].host)", `"" is not a rank: write a number such as 0`}}},
		{name: "port without a name", text: "$(service.port[])", want: []badReference{
			{"$(service.port[])", `spec.service.ports has no port named "": use "http"`}}},
		{name: "no service", text: "$(service.worker[0].host)$(rank)$(service.port[http])",
			change: func(j *engine.Job) { j.Service = nil }, want: []badReference{
				{"$(service.worker[0].host)", "replicas have names in DNS only where the job has a service: add spec.service"},
				{"$(service.port[http])", "the job has no service: add spec.service with a port of this name"}}},
		{name: "nested in a rank", text: "$(service.worker[$(rank)].host)", want: []badReference{
			{"$(service.worker[$(rank)", "variables do not nest: write the role, rank or port itself between [ and ]"}}},
		{name: "nested in a role", text: "$(service.$(type)[0].host)", want: []badReference{
			{"$(service.$(type)", "variables do not nest: write the role, rank or port itself between [ and ]"}}},
		{name: "nested in replicas", text: "$(replicas[$(type)])", want: []badReference{
			{"$(replicas[$(type)", "variables do not nest: write the role, rank or port itself between [ and ]"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := trainJob()
			if c.change != nil {
				c.change(job)
			}
			_, bad := vocabulary{job, &job.Roles[0]}.compile(c.text)
			if diff := cmp.Diff(c.want, bad, cmp.AllowUnexported(badReference{})); diff != "" {
				t.Error("(-want +got)\n" + diff)
			}
		})
	}
}

func TestTextsWithoutVariablesCostNothingPerReplica(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{{
		Command: []string{"sh", "-c", "echo $HOME $(date)"}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "ROLE", Value: "worker"}},
	}}}
	x := expander{"$(rank)": {"", ""}}
	if n := testing.AllocsPerRun(100, func() { x.expand(7, &spec) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzSubstitute compares compile with a simple substitution that follows the definition character by character. It
// also verifies that each bad reference quotes the text and has a message.
func FuzzSubstitute(f *testing.F) {
	for _, s := range []string{"$(rank)", "$$(rank)", "$$$(type)", "$(replicas[ps])", "$(service.worker[0].host):$(service.port[http])",
		"a$(b$(rank)c", "$(service.worker[$(rank)].host)", "$", "$$", "$(", "\x00$(rank)\xff"} {
		f.Add(s, 2)
	}
	f.Fuzz(func(t *testing.T, text string, rank int) {
		job := trainJob()
		v := vocabulary{job, &job.Roles[0]}
		parts, bad := v.compile(text)
		if len(parts) == 0 {
			t.Fatal("no parts")
		}
		for _, b := range bad {
			if !strings.Contains(text, b.ref) || b.detail == "" {
				t.Errorf("error %q does not quote this text, or has no message", b)
			}
		}
		if len(bad) > 0 {
			return
		}
		got := strings.Join(parts, strconv.Itoa(rank))
		if want := slowly(text, rank); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	})
}

// slowly replaces the variables in a text of role worker of trainJob.
func slowly(text string, rank int) string {
	known := map[string]string{
		"type": "worker", "rank": strconv.Itoa(rank), "replicas[worker]": "3", "replicas[ps]": "2", "replicas[port]": "1",
		"replicas[idle]": "0", "service.port[http]": "2222",
	}
	for role, n := range map[string]int{"worker": 3, "ps": 2, "port": 1} {
		for r := range n {
			for zeros := range maxRankDigits {
				known[fmt.Sprintf("service.%s[%0*d].host", role, zeros+1, r)] = fmt.Sprintf("train-%s-%d", role, r)
			}
		}
	}
	out := ""
	for text != "" {
		if name, rest, ok := strings.Cut(text, ")"); ok && strings.HasPrefix(name, "$(") {
			if value, ok := known[name[2:]]; ok {
				out += value
			} else {
				out += name + ")"
			}
			text = rest
			continue
		}
		n := 1
		if strings.HasPrefix(text, "$") && len(text) > 1 && !strings.HasPrefix(text, "$(") {
			n = 2
		}
		out, text = out+text[:n], text[n:]
	}
	return out
}
