// Package queue maintains the status of Queues and PodGroups, creates the initial queues, ends pods that are older than
// their queue allows, and looks up the largest pod that a queue accepts. It does not decide which pods start; the
// scheduler does. Start reading at Add and Shapes.
package queue
