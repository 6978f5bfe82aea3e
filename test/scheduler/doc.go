// Package scheduler tests the t9k-scheduler on a real API server. Its nodes are simulated by KWOK, or exist on paper only where
// a test decides itself when a pod has gone. Most tests share one API server and one scheduler, each with a namespace, queues
// and nodes of its own; those that kill the scheduler, or give it other settings, start their own.
package scheduler
