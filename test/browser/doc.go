// Package browser tests the console in a real Chromium: `t9k ui` on an embedded cluster, and on a stage, which is a
// fake API server with the objects and timestamps of a test. It is a separate module, so that the product does not
// depend on the browser's driver. Start reading at open and at TestConsolePagesAndButtonsWork.
package browser
