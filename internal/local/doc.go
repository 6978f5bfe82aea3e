// Package local runs a Kubernetes cluster on one machine: etcd, the Kubernetes components and this repository's own,
// all contained in one binary and started as its child processes.
//
// A cluster is a directory ([Dir]) with a persistent configuration ([Config]). Its machine process ([Machine]) holds
// the directory's lock, creates what the components need (certificates, kubeconfigs, mounts), and keeps them running
// through a [Supervisor]. [Up], [Down] and [Client] are called by other processes: they talk to the machine process
// through a socket in the directory, or clean up after one that was killed.
package local
