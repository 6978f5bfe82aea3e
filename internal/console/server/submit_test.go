package server

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/console/submit"
)

// valid is a manifest without errors.
const valid = `apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata:
  name: NAME
spec:
  replicaSpecs:
    - type: worker
      template:
        spec:
          containers: [{name: main, image: busybox}]
`

func manifestOf(name string) string { return strings.ReplaceAll(valid, "NAME", name) }

// submits posts a form to the page Submit. header holds pairs of names and values.
func submits(s *Server, cookies []*http.Cookie, form url.Values, header ...string) (code int, body string) {
	r := httptest.NewRequest(http.MethodPost, "/submit", strings.NewReader(form.Encode()))
	r.Host = host
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+host)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, html.UnescapeString(w.Body.String())
}

// TestBadManifestsGetTheirErrors verifies that checking and running a bad manifest show its errors and offer no button
// to run it. Neither sends a request to the cluster: the console of this test has no clients.
func TestBadManifestsGetTheirErrors(t *testing.T) {
	s := forbidden(t)
	cookies := enter(t, s)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no YAML":            {"a: [b\n", []string{">Line 1<", "not valid YAML"}},
		"a sentence":         {"run my job please", []string{">Line 1<", "not an object"}},
		"a tab":              {"apiVersion: v1\n\tkind: Pod\n", []string{">Line 2<", "found a tab character"}},
		"broken JSON":        {"{\n\"apiVersion\": \"v1\",\n\"kind\": \"Pod\"\n\"metadata\": {}}", []string{">Line 4<", "not valid JSON"}},
		"JSON":               {"{\"apiVersion\": \"batch.tensorstack.dev/v1beta1\",\n\"kind\": \"GenericJob\", \"metadata\": {\"name\": \"x\"},\n\"spec\": {\"replicaSpec\": []}}", []string{">Line 3<", "unknown field; did you mean \"replicaSpecs\"?"}},
		"an unknown kind":    {strings.ReplaceAll(manifestOf("x"), "GenericJob", "GenericJbo"), []string{">Line 2<", `did you mean "GenericJob"?`}},
		"an unknown field":   {strings.ReplaceAll(manifestOf("x"), "image:", "imgae:"), []string{">Line 10<", "spec.replicaSpecs[0].template.spec.containers[0].imgae", `did you mean "image"?`}},
		"a wrong name":       {manifestOf("x_y"), []string{">Line 4<", "metadata.name"}},
		"one of two is bad":  {manifestOf("x") + "---\n" + strings.ReplaceAll(manifestOf("other"), "worker", "Worker"), []string{">Line 18<", "1 error."}},
		"the same job twice": {manifestOf("x") + "---\n" + manifestOf("x"), []string{">Line 15<", "the manifest has this object twice: it also begins on line 1"}},
		"too many objects":   {strings.Repeat(manifestOf("x")+"---\n", submit.MostObjects+1), []string{">Line 551<", "this is object 51 of 51"}},
		"too many bytes":     {manifestOf("x") + strings.Repeat("# long\n", submit.MostText/7), []string{"the text is larger than 128 KiB"}},
		"too many documents": {strings.Repeat("---\na: 1\n", 10_001), []string{">Line 1<", "split it"}},
		"a template":         {strings.ReplaceAll(manifestOf("x"), "name: x", "name: {{ .Values.name }}"), []string{"not valid YAML", "Line 4 has {{ .Values.name }}, a variable of a template."}},
		"a hidden direction": {manifestOf("x") + "# \u202e", []string{">Line 11<", "invisible character U+202E"}},
		"bytes":              {"\xff\xfe", []string{"the text is not UTF-8"}},
		"a huge job":         {strings.ReplaceAll(manifestOf("x"), "- type: worker", "- type: worker\n      replicas: 2000000000"), []string{">Line 6<", "the job asks for 2000000000 replicas"}},
		"hostile text":       {"</textarea><script>alert(1)</script>", []string{"not an object"}},
		"nothing":            {"", []string{"The text holds no object."}},
		"only comments":      {"# nothing\n---\n", []string{"The text holds no object."}},
	} {
		t.Run(name, func(t *testing.T) {
			for step, code := range map[string]int{"check": http.StatusOK, "run": http.StatusConflict} {
				got, body := submits(s, cookies, url.Values{"manifest": {c.text}, "ns": {"ns"}, "step": {step}})
				if got != code {
					t.Errorf("%s: %d, want %d", step, got, code)
				}
				for _, want := range c.want {
					if !strings.Contains(body, want) {
						t.Errorf("%s: %q is missing in\n%s", step, want, body[:min(len(body), 20000)])
					}
				}
				if strings.Contains(body, "do-run") {
					t.Errorf("%s: it can be run", step)
				}
			}
		})
	}
}

func TestSubmitKeepsTheText(t *testing.T) {
	s := forbidden(t)
	cookies := enter(t, s)
	text := "\n# äöü </textarea><b>\n\tx: \"" + `\u202e` + "\"\n"
	_, body := submits(s, cookies, url.Values{"manifest": {strings.ReplaceAll(text, "\n", "\r\n")}, "ns": {" team-a "}})
	if !strings.Contains(body, ">\n"+text+"</textarea>") || !strings.Contains(body, `value="team-a"`) {
		t.Errorf("the text or the namespace is not kept:\n%s", body)
	}
	if code, _ := submits(s, cookies, url.Values{"manifest": {strings.Repeat("x", 5*submit.MostText)}}); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a form of %d bytes: %d", 5*submit.MostText, code)
	}
	code, body := submits(s, cookies, url.Values{"manifest": {"a: ["}}, "Accept", "application/json")
	if code != http.StatusOK || !strings.HasPrefix(body, `[["submit-numbers",`) || strings.Contains(body, "<textarea") {
		t.Errorf("the answer to the script: %d %s", code, body)
	}
	for name, header := range map[string][]string{"another page": {"Origin", "http://evil.example"}, "a page without origin": {"Origin", ""}, "the same site only": {"Sec-Fetch-Site", "same-site"}} {
		if code, _ := submits(s, cookies, url.Values{"manifest": {manifestOf("x")}, "step": {"run"}}, header...); code != http.StatusForbidden {
			t.Errorf("a form of %s: %d", name, code)
		}
	}
	if code, _ := submits(s, nil, url.Values{"manifest": {manifestOf("x")}, "step": {"run"}}); code != http.StatusUnauthorized {
		t.Errorf("a form of a browser that was not admitted: %d", code)
	}
}
