// Package local runs a Kubernetes cluster on one machine: etcd, the Kubernetes components and this repository's own
// components. One binary contains all of them and runs each program in a child process.
//
// A cluster is a directory ([Dir]) with a persistent configuration ([Config]). Its machine process ([Machine]) holds
// the directory's lock, creates everything that the components need (certificates, kubeconfigs, mounts), and keeps them
// running through a [Supervisor]. Other processes call [Up], [Down] and [Client], which send requests to the machine
// process through a socket in the directory. [Up] and [Down] also clean up after a machine process that was killed.
package local
