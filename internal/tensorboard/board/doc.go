// Package board knows TensorBoards: which logs a spec asks for, the objects that show them, and what is to be told of them.
// The package is pure.
package board
