// Package board computes what a TensorBoard consists of: the logs that a spec asks for, the Deployment and Service that
// serve them, and the status. It is pure: it calls no API server. Start reading at Convert, Deployment and Observe.
package board
