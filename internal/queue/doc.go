// Package queue keeps the status of Queues and PodGroups, ends pods that are older than their queue allows, and knows
// how large the pods of a queue may be. It does not decide which pods start; the scheduler does. Start reading at Add
// and Shapes.
package queue
