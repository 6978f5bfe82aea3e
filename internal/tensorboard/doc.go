// Package tensorboard contains the controller of TensorBoards and the controllers that create the TensorBoards of jobs.
// It only reads and writes objects. Package board computes their content. Start reading at Add and AddLink.
package tensorboard
