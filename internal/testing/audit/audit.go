// Package audit reads an API server's audit log, so that a test or a benchmark can count requests.
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

// Policy returns an audit policy that logs only the requests of the given users, or the requests of all users if none
// are given. At level Request, the log contains the objects that were sent; at level Metadata, it does not.
func Policy(level string, users ...string) string {
	list, _ := json.Marshal(users) // strings can always be encoded
	return fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: %s, users: %s}
- {level: None}
`, level, list)
}

// Event is one request in the audit log of an API server.
type Event struct {
	// At is the time at which the API server received the request.
	At time.Time
	// User is the user who sent the request.
	User string
	// Verb is get, list, watch, create, update, patch, delete and so on.
	Verb string
	// Group is the API group, such as "batch.tensorstack.dev"; it is empty for Kubernetes' core group.
	Group string
	// Resource is the plural, with the subresource if there is one, for example "genericjobs/status".
	Resource        string
	Namespace, Name string
	// URI is the path of the request with its query.
	URI string
	// Code and Message are the status code of the answer and, if there is one, its message.
	Code    int
	Message string
	// Forbidden means that the user had no permission to send the request.
	Forbidden bool
	// Body is the object that was sent, as JSON. It is empty at level Metadata and for requests without an object.
	Body json.RawMessage
}

// Write reports whether the verb is none of get, list and watch.
func (e *Event) Write() bool {
	switch e.Verb {
	case "get", "list", "watch":
		return false
	}
	return true
}

// line contains the fields of a line of the log that this package reads.
type line struct {
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations              map[string]string `json:"annotations"`
	RequestObject            json.RawMessage   `json:"requestObject"`
	RequestReceivedTimestamp time.Time         `json:"requestReceivedTimestamp"`
}

// Log is an audit log that is being written.
type Log struct {
	path   string
	offset int64
}

// Open returns the audit log at path. Next starts at the beginning of the log.
func Open(path string) *Log { return &Log{path: path} }

// OpenAtEnd returns the audit log at path. Next starts after the last complete line of the log.
func OpenAtEnd(path string) (*Log, error) {
	l := Open(path)
	_, err := l.Next()
	return l, err
}

// Next returns the requests that were logged since the last call. If the API server has not created the file yet, there
// are none. A watch counts once, when it starts.
func (l *Log) Next() ([]Event, error) {
	f, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
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
		if errors.Is(err, io.EOF) { // the text before the end of the file is an incomplete line
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
	// A long request is logged twice: when its answer starts and when it is complete.
	if begun := in.Stage == "ResponseStarted"; begun != (in.Verb == "watch") {
		return Event{}, false, nil
	}
	e := Event{At: in.RequestReceivedTimestamp, User: in.User.Username, Verb: in.Verb, Group: in.ObjectRef.APIGroup,
		Resource: in.ObjectRef.Resource, Namespace: in.ObjectRef.Namespace, Name: in.ObjectRef.Name, URI: in.RequestURI,
		Code: in.ResponseStatus.Code, Message: in.ResponseStatus.Message, Body: in.RequestObject,
		Forbidden: in.Annotations["authorization.k8s.io/decision"] == "forbid"}
	if s := in.ObjectRef.Subresource; s != "" {
		e.Resource += "/" + s
	}
	return e, true, nil
}

// Count returns the number of requests by verb and resource, such as "create pods" or "update genericjobs/status".
func Count(events []Event) map[string]int {
	n := map[string]int{}
	for i := range events {
		n[events[i].Verb+" "+events[i].Resource]++
	}
	return n
}
