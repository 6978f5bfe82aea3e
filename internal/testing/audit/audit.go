// Package audit reads what an API server has written down of the requests that it got, so that a test or a benchmark can
// count them.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Policy is an audit policy that writes down the requests of the given users, and of nobody else. At level Request the log
// holds what was sent too, at level Metadata only that it was.
func Policy(level string, users ...string) string {
	list, _ := json.Marshal(users) // strings always marshal
	return fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: %s, users: %s}
- {level: None}
`, level, list)
}

// Event is one request.
type Event struct {
	// At is when the API server received it.
	At time.Time
	// User who sent it.
	User string
	// Verb is get, list, watch, create, update, patch, delete and so on.
	Verb string
	// Resource is the plural, with the subresource where there is one, for example "genericjobs/status".
	Resource        string
	Namespace, Name string
	// Code of the answer.
	Code int
	// Body is the object that was sent, as JSON; empty at level Metadata.
	Body json.RawMessage
}

// Write tells whether the request asks for a change.
func (e *Event) Write() bool {
	switch e.Verb {
	case "get", "list", "watch":
		return false
	}
	return true
}

// line is one line of the log, as far as it is read here.
type line struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource, Subresource, Namespace, Name string
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject            json.RawMessage `json:"requestObject"`
	RequestReceivedTimestamp time.Time       `json:"requestReceivedTimestamp"`
}

// Log is an audit log that is being written.
type Log struct {
	path   string
	offset int64
}

// Open gives access to the audit log of a file, from its beginning on.
func Open(path string) *Log { return &Log{path: path} }

// Next returns the requests that were written down since the last call. A watch counts once, when it begins.
func (l *Log) Next() ([]Event, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	var events []Event
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what comes before it is half a line
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		l.offset += int64(len(text))
		e, ok, err := parse(bytes.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if ok {
			events = append(events, e)
		}
	}
}

func parse(text []byte) (Event, bool, error) {
	var in line
	if err := json.Unmarshal(text, &in); err != nil {
		return Event{}, false, fmt.Errorf("reading a line of the audit log: %w", err)
	}
	// A request is written down when it begins to be answered, if that takes long, and when it has been answered.
	if begun := in.Stage == "ResponseStarted"; begun != (in.Verb == "watch") {
		return Event{}, false, nil
	}
	e := Event{At: in.RequestReceivedTimestamp, User: in.User.Username, Verb: in.Verb, Resource: in.ObjectRef.Resource,
		Namespace: in.ObjectRef.Namespace, Name: in.ObjectRef.Name, Code: in.ResponseStatus.Code, Body: in.RequestObject}
	if s := in.ObjectRef.Subresource; s != "" {
		e.Resource += "/" + s
	}
	return e, true, nil
}

// Count tells how many requests of each sort there are, such as "create pods" or "update genericjobs/status".
func Count(events []Event) map[string]int {
	n := map[string]int{}
	for i := range events {
		n[events[i].Verb+" "+events[i].Resource]++
	}
	return n
}
