// Package board computes the parts of a TensorBoard: the logs that the spec selects, the Deployment and Service that
// serve them, and the status. It is pure and does no I/O. Start reading at Convert, Deployment and Observe.
package board
