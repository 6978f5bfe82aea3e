// Package e2e tests jobs on the embedded cluster: real processes, kubelet, scheduler, API server and operator, as `t9k
// local` runs them. Each test has a namespace of its own and most run side by side on one cluster; those that break parts
// of a cluster start their own.
//
// The processes of a job do what the test tells them: they wait at a gate (order.go) until the test lets them end, with
// the exit code that it says. So a test never sleeps to let something happen.
package e2e
