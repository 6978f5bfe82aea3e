// Package monitoring tests the alerts and dashboards of the chart with Prometheus' own engine. It contains nothing
// else: the alerts are in charts/t9k-batch/files/rules, the dashboards in charts/t9k-batch/files/dashboards. It is a
// module of its own, so that the product does not depend on Prometheus' server.
package monitoring
