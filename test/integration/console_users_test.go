package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/console/consolecmd"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
)

// consoleUser is the user name of the console's ServiceAccount.
const consoleUser = "system:serviceaccount:t9k-system:t9k-console"

// installation is a console that many users share.
type installation struct {
	*world
	base string
}

// consoleArchive returns the settings of a console with an archive in a file.
func consoleArchive(file string) string { return "archive: {address: " + file + "}" }

// prepareConsole installs config/console. It returns the arguments of a console with the given settings that runs as
// the installed ServiceAccount, and the addresses of the console's pages and probes.
func (w *world) prepareConsole(settings ...string) (args []string, address, probes string) {
	w.Helper()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: config.Namespace}}
	w.Must(client.IgnoreAlreadyExists(w.Client.Create(w.Context(), system)))
	w.kubectlApply("../../config/console")
	w.awaitRightOf(consoleUser, true, authorization.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"})
	w.awaitRightOf(consoleUser, true, authorization.ResourceAttributes{Verb: "watch", Resource: "nodes"})
	address, probes = freeAddress(w.T), freeAddress(w.T)
	base := fmt.Sprintf("{server: {bindAddress: %q}, health: {bindAddress: %q}, metrics: {bindAddress: \"0\"}, accessCacheTime: 500ms}", address, probes)
	text, err := local.ConsoleSettings(append([]string{base}, settings...)...)
	w.Must(err)
	file := filepath.Join(w.TempDir(), "console.yaml")
	w.Must(os.WriteFile(file, text, 0o600))
	return []string{"--kubeconfig=" + w.serviceAccountKubeconfig("t9k-console"), "--config=" + file}, address, probes
}

// startConsole starts a console as the ServiceAccount of config/console, and waits until it is ready.
func (w *world) startConsole(settings ...string) *installation {
	w.Helper()
	args, address, probes := w.prepareConsole(settings...)
	w.runConsole(args)
	w.Await("the console is ready", func() error { return consoleReady(probes) })
	return &installation{w, "http://" + address}
}

// runConsole runs a console with these arguments until the test ends.
func (w *world) runConsole(args []string) {
	w.Helper()
	cmd := consolecmd.New()
	cmd.SetArgs(args)
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	w.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

// consoleReady returns an error unless the console is ready.
func consoleReady(probes string) error {
	answer, err := http.Get("http://" + probes + "/readyz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}

// person is a user whose requests carry a bearer token, as if an authenticating proxy in front of the console had added
// it.
type person struct {
	*installation
	name, token string
}

// person creates a ServiceAccount with the given rights in the namespace of w, and returns it as a user of the console
// i.
func (w *world) person(i *installation, name string, rules ...rbacv1.PolicyRule) *person {
	w.Helper()
	w.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	request, err := w.Core.CoreV1().ServiceAccounts(w.Namespace).CreateToken(w.Context(), name, &authentication.TokenRequest{}, metav1.CreateOptions{})
	w.Must(err)
	p := &person{i, "system:serviceaccount:" + w.Namespace + ":" + name, request.Status.Token}
	if len(rules) > 0 {
		w.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
		w.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: w.Namespace}}})
	}
	return p
}

// everywhere gives a person rights in all namespaces until the test ends, and returns the person.
func (p *person) everywhere(rules ...rbacv1.PolicyRule) *person {
	p.Helper()
	name := strings.ReplaceAll(p.name, ":", "-")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: p.name}}}
	for _, o := range []client.Object{role, binding} {
		p.Must(p.Client.Create(p.Context(), o))
		p.Cleanup(func() {
			if err := p.Client.Delete(p.AfterTest(), o); client.IgnoreNotFound(err) != nil {
				p.Error(err)
			}
		})
	}
	return p
}

// call sends a request with the person's token and does not follow redirects. header holds pairs of names and values,
// which override others.
func (p *person) call(method, path string, form url.Values, header ...string) (code int, body string) {
	p.Helper()
	answer := p.request(method, path, form, header...)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	p.Must(err)
	return answer.StatusCode, string(data)
}

func (p *person) request(method, path string, form url.Values, header ...string) *http.Response {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), method, p.base+path, strings.NewReader(form.Encode()))
	p.Must(err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", p.base)
	}
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := browser.Do(r)
	p.Must(err)
	return answer
}

// page returns the page at a path. It ends the test unless the status is 200.
func (p *person) page(path string) string {
	p.Helper()
	code, body := p.call(http.MethodGet, path, nil)
	if code != http.StatusOK {
		p.Fatalf("%s gets %s: %d %s", p.name, path, code, body)
	}
	return body
}

// listen returns the events that the console pushes to an open page, and a channel that is closed when the stream ends.
func (p *person) listen(path string) (pushed *program.Log, ended <-chan struct{}) {
	p.Helper()
	answer := p.request(http.MethodGet, path, nil, "Accept", "text/event-stream")
	if answer.StatusCode != http.StatusOK {
		p.Fatalf("%s listens to %s: %s", p.name, path, answer.Status)
	}
	p.Cleanup(func() { answer.Body.Close() })
	return collect(answer.Body)
}

func rule(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
}

// plurals returns the resource names of all kinds of job.
func plurals() []string {
	var all []string
	for _, k := range kinds.All {
		all = append(all, k.Plural)
	}
	return all
}

// look holds the rights to see everything about a job except its logs.
var look = []rbacv1.PolicyRule{
	rule(batch.GroupVersion.Group, strings.Join(plurals(), " "), "get list watch"),
	rule(scheduling.GroupVersion.Group, "podgroups", "get list watch"), rule("", "pods events", "get list watch"),
}

// shared creates a second namespace, and one job with a pod and an event in each of the two. It returns the second
// namespace.
func (w *world) shared() (other *world) {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-b"}}
	w.Must(w.Client.Create(w.Context(), ns))
	w.Cleanup(func() {
		if err := w.Client.Delete(w.AfterTest(), ns); err != nil {
			w.Error(err)
		}
	})
	other = &world{w.Beside(ns.Name)}
	other.AwaitServiceAccount()
	for _, in := range []*world{w, other} {
		in.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Run)))
		j := in.job("job")
		in.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-w-0", Labels: map[string]string{
			batch.LabelJobName: "job", batch.LabelJobKind: "GenericJob", batch.LabelReplicaType: "w", batch.LabelReplicaRank: "0", batch.LabelReplicaAttempt: "0"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob", Name: "job", UID: j.UID, Controller: new(true)}}},
			Spec: jobs.Role("w", 1, kubelet.Run).Template.Spec})
		in.Create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "said"}, Reason: "Said", Message: "told-" + in.Namespace, Type: "Normal", LastTimestamp: metav1.Now(),
			InvolvedObject: corev1.ObjectReference{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob", Namespace: in.Namespace, Name: "job", UID: j.UID}})
	}
	return other
}

// TestConsoleShowsAndDoesWhatEachUserMay verifies, for a table of users, what each page shows and which actions
// succeed, and that the console itself uses exactly its permissions.
func TestConsoleShowsAndDoesWhatEachUserMay(t *testing.T) {
	w := newWorld(t)
	log := w.auditEnd()
	other := w.shared()
	queue := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + w.Namespace}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
	for _, o := range []client.Object{queue, node} {
		w.Must(w.Client.Create(w.Context(), o))
		w.Cleanup(func() {
			if err := w.Client.Delete(w.AfterTest(), o); err != nil {
				w.Error(err)
			}
		})
	}
	i := w.startConsole()
	change := rule(batch.GroupVersion.Group, "genericjobs pytorchtrainingjobs pytorchtrainingjobs/scale", "patch create delete update")
	list := rule(batch.GroupVersion.Group, "genericjobs pytorchtrainingjobs", "list")
	users := map[string]*person{
		"admin":  w.person(i, "admin").everywhere(rule("*", "*", "*")),
		"editor": w.person(i, "editor", slices.Concat(look, []rbacv1.PolicyRule{change, rule("", "pods/log", "get")})...),
		"viewer": w.person(i, "viewer", look...),
		"lister": w.person(i, "lister", list),
		"other":  other.person(i, "other", slices.Concat(look, []rbacv1.PolicyRule{change})...),
		"ops":    w.person(i, "ops").everywhere(rule("", "nodes", "list watch get"), rule(scheduling.GroupVersion.Group, "queues", "list")),
		"nobody": w.person(i, "nobody"),
		"blind":  w.person(i, "blind", change), // blind may change jobs but not see them
	}
	for _, in := range []*world{w, other} {
		for k := range deeds {
			deeds[k].prepare(in, users["admin"])
		}
	}
	here, there := "/jobs/"+w.Namespace+"/genericjob/job", "/jobs/"+other.Namespace+"/genericjob/job"
	// In the table, the words that a page must show are separated by spaces. A word that the page must not show
	// begins with a minus. 404 is the status of a page that the user may not see.
	const notForbidden, forbidden, unseen = "done", "forbidden", "no such job"
	for name, c := range map[string]struct {
		jobs, here, there string
		logs, logsThere   string
		queues, nodes     string
		acts, actsThere   string
		submit            string
	}{
		"admin":  {"HERE THERE", "w-0 EVENT", "w-0", "-not-read", "-not-read", "QUEUE", "NODE", notForbidden, notForbidden, notForbidden},
		"editor": {"HERE -THERE", "w-0 EVENT", "404", "-not-read", "404", "-QUEUE", "-NODE", notForbidden, unseen, notForbidden},
		"viewer": {"HERE -THERE", "w-0 EVENT", "404", "not-read", "404", "-QUEUE", "-NODE", forbidden, unseen, forbidden},
		"lister": {"HERE -THERE", "-w-0 -EVENT NOPODS", "404", "no-pod", "404", "-QUEUE", "-NODE", forbidden, unseen, forbidden},
		"other":  {"-HERE THERE", "404", "w-0", "404", "not-read", "-QUEUE", "-NODE", unseen, notForbidden, forbidden},
		"ops":    {"-HERE -THERE", "404", "404", "404", "404", "QUEUE", "NODE", unseen, unseen, forbidden},
		"nobody": {"-HERE -THERE", "404", "404", "404", "404", "-QUEUE", "-NODE", unseen, unseen, forbidden},
		"blind":  {"-HERE -THERE", "404", "404", "404", "404", "-QUEUE", "-NODE", unseen, unseen, unseen},
	} {
		t.Run(name, func(t *testing.T) {
			p := *users[name]
			p.installation = &installation{w.in(t), i.base}
			words := strings.NewReplacer("HERE", here, "THERE", there, "w-0", `<bdi>w-0</bdi>`, "EVENT", "told-"+w.Namespace, "QUEUE", ">"+queue.Name+"<",
				"NODE", ">"+node.Name+"<", "NOPODS", "You&#32;may&#32;not&#32;list&#32;pods&#32;of&#32;namespace", "not-read", "you&#32;may&#32;not&#32;read", "no-pod", "There&#32;is&#32;no&#32;pod")
			for path, want := range map[string]string{"/": c.jobs, here + "?tab=events": c.here, there + "?tab=replicas": c.there, here + "/logs": c.logs, there + "/logs": c.logsThere, "/queues": c.queues, "/nodes": c.nodes} {
				p.Await("page "+path+" shows "+want, func() error { return p.shows(path, want, words) })
			}
			for path, want := range map[string]string{here: c.logs, there: c.logsThere} {
				for _, part := range []string{"/logs/stream", "/logs/download"} {
					if want != "404" { // what users who see the job may read was checked on the pages of the logs
						continue
					}
					if code, body := p.call(http.MethodGet, path+part, nil); code != http.StatusNotFound {
						t.Errorf("%s%s: %d %s", path, part, code, body)
					}
				}
			}
			for k := range deeds {
				p.does(&deeds[k], &world{p.Beside(w.Namespace)}, users["admin"], c.acts)
				p.does(&deeds[k], &world{p.Beside(other.Namespace)}, users["admin"], c.actsThere)
			}
			p.submits(name, c.submit)
		})
	}
	t.Run("the console uses exactly its permissions", func(t *testing.T) {
		w := w.in(t)
		used := w.checkUse(consoleUser, log, []string{"t9k-console"}, func(p permission) string {
			if p.resource == "namespaces" {
				return "only a console with an archive needs it; see TestConsoleWithAnArchiveUsesExactlyItsPermissions"
			}
			return ""
		})
		for p := range used.all {
			if !slices.Contains([]string{"list", "watch", "create"}, p.verb) {
				t.Errorf("the console itself does %s", p)
			}
		}
	})
}

// shows returns an error unless a page shows all required words of want and none that begins with a minus. If want is
// 404, it returns an error unless the status is 404. words replaces abbreviations in want; afterwards, &#32; stands for
// a space within a word.
func (p *person) shows(path, want string, words *strings.Replacer) error {
	code, body := p.call(http.MethodGet, path, nil)
	if want == "404" {
		if code != http.StatusNotFound {
			return fmt.Errorf("%s: %d", path, code)
		}
		return nil
	}
	if code != http.StatusOK {
		return fmt.Errorf("%s: %d %s", path, code, body)
	}
	for _, word := range strings.Fields(want) {
		text, absent := strings.CutPrefix(word, "-")
		text = strings.ReplaceAll(words.Replace(text), "&#32;", " ")
		if strings.Contains(body, text) == absent {
			return fmt.Errorf("%q is there: %t, in\n%s", text, !absent, body)
		}
	}
	return nil
}

// TestConsoleStreamsEndWithTheRightToThem verifies that a viewer receives no more changes once the right is withdrawn
// or the account is deleted.
func TestConsoleStreamsEndWithTheRightToThem(t *testing.T) {
	w := newWorld(t)
	w.shared()
	i := w.startConsole()
	p := w.person(i, "viewer", look...)
	path := "/jobs/" + w.Namespace + "/genericjob/job"
	w.Await("the viewer sees the job", func() error { return p.shows("/", path, strings.NewReplacer()) })
	rows, _ := p.listen("/")
	job, jobEnded := p.listen(path)
	w.Await("both streams show the job", func() error {
		if !strings.Contains(rows.String(), path) || !strings.Contains(job.String(), "w-0") {
			return errors.New(rows.String() + job.String())
		}
		return nil
	})
	w.Must(w.Client.Delete(w.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "viewer"}}))
	w.ends("the stream of the job", jobEnded)
	w.contains("what it has told", job.String(), "It is gone")
	w.Await("the list is empty", func() error {
		all := rows.String()
		if last := all[strings.LastIndex(all, "event: patch"):]; strings.Contains(last, path) || !strings.Contains(all, `<tbody id=\"rows\"></tbody>`) && !strings.Contains(all, `tbody`) {
			return errors.New(all)
		}
		return nil
	})
	before := len(job.String())
	w.patch("job", `{"metadata":{"labels":{"changed":"yes"}}}`)
	if code, _ := p.call(http.MethodGet, path, nil, "Accept", "text/event-stream"); code != http.StatusNotFound {
		t.Errorf("a new stream: %d", code)
	}
	if len(job.String()) != before {
		t.Errorf("after its end the stream has sent %s", job.String()[before:])
	}
	_, listEnded := p.listen("/")
	w.Must(w.Client.Delete(w.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "viewer"}}))
	w.ends("the stream of the list", listEnded)
	w.Await("the token is refused", func() error {
		if code, _ := p.call(http.MethodGet, "/", nil); code != http.StatusUnauthorized {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
}

// ends waits until a channel is closed.
func (w *world) ends(what string, ended <-chan struct{}) {
	w.Helper()
	w.Await(what+" ends", func() error {
		select {
		case <-ended:
			return nil
		case <-time.After(10 * time.Millisecond):
			return errors.New("it has not")
		}
	})
}

// TestConsoleOfAnInstallationRefusesForeignPages verifies that a console with server.urls refuses requests for other
// hosts, requests from pages at other addresses except by links, and requests for pages or actions without a valid
// token.
func TestConsoleOfAnInstallationRefusesForeignPages(t *testing.T) {
	w := newWorld(t)
	w.shared()
	const public = "https://console.example.org"
	i := w.startConsole("server: {urls: [" + public + "]}")
	p := w.person(i, "admin").everywhere(rule("*", "*", "*"))
	path := "/jobs/" + w.Namespace + "/genericjob/job"
	w.Await("the admin sees the job", func() error {
		if code, body := p.call(http.MethodGet, path, nil, "Host", "console.example.org"); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	for name, c := range map[string]struct {
		method, path string
		header       []string
		want         int
	}{
		"a page":                             {"GET", path, nil, 200},
		"under another name":                 {"GET", path, []string{"Host", "evil.example"}, 403},
		"under the address of the pod":       {"GET", path, []string{"Host", strings.TrimPrefix(i.base, "http://")}, 403},
		"by a script of another page":        {"GET", path, []string{"Origin", "https://evil.example"}, 403},
		"as an image of another page":        {"GET", path, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		"by a link of another page":          {"GET", path, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		"an action without an origin":        {"POST", path + "/pause", []string{"Origin", ""}, 403},
		"an action of another page":          {"POST", path + "/pause", []string{"Origin", "https://evil.example"}, 403},
		"an action of a page without TLS":    {"POST", path + "/pause", []string{"Origin", "http://console.example.org"}, 403},
		"an action of the same site":         {"POST", path + "/pause", []string{"Origin", public, "Sec-Fetch-Site", "same-site"}, 403},
		"an action by a link":                {"GET", path + "/pause", []string{"Origin", public}, 404},
		"an action of the page":              {"POST", path + "/pause", []string{"Origin", public, "Sec-Fetch-Site", "same-origin"}, 303},
		"without a token":                    {"GET", path, []string{"Authorization", ""}, 401},
		"an action without a token":          {"POST", path + "/pause", []string{"Origin", public, "Authorization", ""}, 401},
		"with a password":                    {"GET", path, []string{"Authorization", "Basic YTpi"}, 401},
		"with a guessed token":               {"GET", path, []string{"Authorization", "Bearer guess"}, 401},
		"with the name of somebody else":     {"GET", path, []string{"Impersonate-User", "system:admin", "Authorization", "Bearer guess"}, 401},
		"a file of the pages, to nobody":     {"GET", "/static/app.js", []string{"Authorization", ""}, 200},
		"a file of the pages, under another": {"GET", "/static/app.js", []string{"Host", "evil.example"}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body := p.call(c.method, c.path, nil, append([]string{"Host", "console.example.org"}, c.header...)...); code != c.want {
				t.Errorf("%d, want %d: %s", code, c.want, body)
			}
		})
	}
}
