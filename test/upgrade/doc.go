// Package upgrade tests what Helm does to a running installation: install, upgrade, downgrade and removal, with the
// chart and the programs of the last release and of this checkout. The operator and the scheduler run as the pods of
// their Deployments on a real kubelet. Start reading at TestUpgradeAndRemoval.
package upgrade
