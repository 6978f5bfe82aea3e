// Package tensorboard reconciles TensorBoards and the link from jobs to them. It only reads and writes objects; package
// board computes what they should be. Start reading at Add and AddLink.
package tensorboard
