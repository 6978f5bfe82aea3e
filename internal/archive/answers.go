package archive

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// The types below are the responses of the API; see package web.

// JobList is the response to GET /api/v1/history/jobs.
type JobList struct {
	Jobs []*Job `json:"jobs"`
	// More is true if more jobs follow the last one in Jobs.
	More bool `json:"more"`
	// Next is the cursor of the next page; empty on the last page.
	Next string `json:"next,omitempty"`
}

// JobDetails is the response to GET /api/v1/history/jobs/UID.
type JobDetails struct {
	Job
	Attempts []AttemptDetails  `json:"attempts"`
	Events   []json.RawMessage `json:"events"`
}

// plain is a Job without its methods, so that MarshalJSON does not call itself.
type plain Job

// MarshalJSON adds the outcome, which follows from the other fields.
func (r Job) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		plain
		Outcome string `json:"outcome"`
	}{plain(r), r.Outcome()})
}

// MarshalJSON adds the outcome, as Job.MarshalJSON does.
func (d JobDetails) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		plain
		Outcome  string            `json:"outcome"`
		Attempts []AttemptDetails  `json:"attempts"`
		Events   []json.RawMessage `json:"events"`
	}{plain(d.Job), d.Outcome(), d.Attempts, d.Events})
}

// AttemptDetails is an attempt with the last observed state of its pod.
type AttemptDetails struct {
	Attempt
	Pod json.RawMessage `json:"pod"`
}

// LogList is the response to GET /api/v1/history/jobs/UID/logs.
type LogList struct {
	Logs []LogText `json:"logs"`
}

// LogText is the end of the log of a container of an attempt.
type LogText struct {
	// UID is the UID of the attempt, and Created the time at which its pod was created.
	UID     string    `json:"uid"`
	Created time.Time `json:"created"`
	Role    string    `json:"role"`
	Rank    int       `json:"rank"`
	// Attempt counts from 0, as Attempt.Number does. If scaling removes a replica and later adds it again, its
	// attempts count from 0 again.
	Attempt   int    `json:"attempt"`
	Container string `json:"container"`
	// Cut is true if the beginning of the log is missing.
	Cut bool `json:"cut"`
	// Text consists of lines that begin with a timestamp. Invalid UTF-8 is replaced by U+FFFD.
	Text string `json:"text"`
}

// Replica returns the name of the log's replica in its job, as ROLE-RANK.
func (l *LogText) Replica() string { return fmt.Sprintf("%s-%d", l.Role, l.Rank) }

// Source returns the source of the log's lines for display: the replica, the container if severalContainers is true,
// and the attempt unless it is the first.
func (l *LogText) Source(severalContainers bool) string {
	name := l.Replica()
	if severalContainers {
		name += "/" + l.Container
	}
	if l.Attempt > 0 {
		name += "#" + strconv.Itoa(Ordinal(l.Attempt))
	}
	return name
}

// UsageList is the response to GET /api/v1/history/usage.
type UsageList struct {
	Usage []Usage `json:"usage"`
}

// Error is the response to a request that failed.
type Error struct {
	Error string `json:"error"`
}
