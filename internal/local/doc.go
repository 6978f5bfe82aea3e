// Package local runs a Kubernetes cluster on one machine: etcd, the Kubernetes programs and this repository's own, all
// held by one binary and started as its child processes.
//
// A cluster is a directory ([Dir]). What was chosen for it once (ports, addresses) is its [Config]. Its machine process
// ([RunMachine]) holds the directory's lock, makes what the programs need (certificates, kubeconfigs, private mounts),
// and keeps them running through a [Supervisor]. Everything else ([Up], [Down], [Client]) talks to that process through
// a socket in the directory, or works on what it left behind when it was killed.
package local
