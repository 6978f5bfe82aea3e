// Package local runs a Kubernetes cluster on one machine: etcd, the Kubernetes components and this repository's own
// components, all contained in one binary and started as its child processes.
//
// A cluster is a directory ([Dir]) with a persistent configuration ([Config]). Its machine process ([Machine]) holds
// the directory's lock, creates everything that the components need (certificates, kubeconfigs, mounts), and keeps them
// running through a [Supervisor]. Other processes call [Up], [Down] and [Client], which send requests to the machine
// process through a socket in the directory, or clean up after a machine process that was killed.
package local
