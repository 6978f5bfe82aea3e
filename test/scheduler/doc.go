// Package scheduler tests the t9k-scheduler on a real API server, with nodes that exist on paper only.
package scheduler
