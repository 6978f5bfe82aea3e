// Package tensorboard keeps TensorBoards: it lowers their spec to a Deployment and a Service, which is pure, and has a thin
// controller that acts.
package tensorboard
