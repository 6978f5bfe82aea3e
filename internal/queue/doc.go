// Package queue keeps the status of Queues and PodGroups, and ends pods that are older than their queue allows.
package queue
