// Package browser tests the console in a real Chromium: `t9k ui` on an embedded cluster, and on a stage, which is an API
// server that holds what a test gives it, with the times that it gives. It has a module of its own, so that what drives
// the browser is no part of the product. Start reading at open and at TestConsole.
package browser
