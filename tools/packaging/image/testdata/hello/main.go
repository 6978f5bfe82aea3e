// Command hello is a small program for the images of tests.
package main

import (
	"fmt"

	"github.com/google/uuid"
)

func main() { fmt.Println("hello", uuid.Nil) }
