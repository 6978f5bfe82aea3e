// Package e2e tests jobs on the embedded cluster with real processes, kubelet, scheduler, API server and operator, as
// `t9k local` runs them. Each test has its own namespace, and most tests run in parallel on one cluster. Tests that
// break parts of a cluster use a separate one.
//
// The test controls the processes of a job: they wait at a gate (package test/kit/gate, and order_test.go) until the
// test makes them exit with a given code. Therefore no test sleeps to wait for an event.
package e2e
