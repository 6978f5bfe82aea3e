// Package upgrade tests the effects of Helm on a running installation: install, upgrade, downgrade and uninstall, with
// the chart and the programs of the last release and of this checkout. The operator and the scheduler run as the pods
// of their Deployments on a real kubelet. Start reading at TestJobsSurviveUpgradeAndRemoval.
package upgrade
