package server

import (
	"errors"
	"net/http"

	"tensorstack.dev/batch/internal/console/page"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/tensorboard/forward"
)

// boardPage is the model of the template board: it links to a TensorBoard, or explains why it is not available.
type boardPage struct {
	view.JobRow
	Title, Why, Command string
	// To is the address of the TensorBoard; empty if it is not available.
	To string
	// Suspended is true if the TensorBoard must be resumed first.
	Suspended bool
}

// openBoard opens the TensorBoard of a job at an address of this machine and redirects to that address, or shows why
// the TensorBoard is not available.
func (s *visit) openBoard(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormSize)
	j, err := s.find(r)
	if err != nil {
		s.problem(w, r, http.StatusNotFound, "No such job", err.Error())
		return
	}
	if uid := r.PostFormValue("uid"); uid != "" && uid != string(j.GetUID()) {
		s.problem(w, r, http.StatusConflict, "It was not opened", another(j))
		return
	}
	command := "t9k tensorboard -n " + j.GetNamespace() + " " + j.Ref()
	if s.Boards == nil {
		s.problem(w, r, http.StatusNotFound, "This console opens no TensorBoards", `It does not run on your machine. There, "`+command+`" does it.`)
		return
	}
	to, err := s.Boards.Open(r.Context(), j, r.PostFormValue("resume") == "1")
	if err != nil {
		p := &boardPage{JobRow: view.RowOf(j), Title: "The TensorBoard of " + j.GetName() + " is not shown", Why: err.Error(), Command: command, Suspended: errors.Is(err, forward.ErrSuspended)}
		s.write(w, r, http.StatusConflict, page.Frame{Title: p.Title, Page: "jobs"}, "board", p)
		return
	}
	// The page redirects with a header, because the Content-Security-Policy (form-action) does not allow the response
	// to a form to redirect to another host.
	w.Header().Set("Refresh", "0; url="+to)
	p := &boardPage{JobRow: view.RowOf(j), Title: "The TensorBoard of " + j.GetName(), To: to}
	s.write(w, r, http.StatusOK, page.Frame{Title: p.Title, Page: "jobs"}, "board", p)
}
