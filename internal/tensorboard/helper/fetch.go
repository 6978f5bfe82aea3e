package helper

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // for images and machines without certificate authorities

	"tensorstack.dev/batch/internal/tensorboard/board"
)

// NewFetchCommand returns the command that downloads files into a directory.
func NewFetchCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    board.FetchCommand + " --dir DIR -- URL...",
		Short:  "Fetch files over HTTP; runs in the pods of TensorBoards",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetchAll(cmd.Context(), dir, args)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory that the files are put into")
	_ = cmd.MarkFlagRequired("dir") // fails only if there is no such flag
	return cmd
}

// fetchAll downloads files into dir, one after the other. Each file name begins with the index of the address, so that
// files with the same name do not collide and all files keep their order.
func fetchAll(ctx context.Context, dir string, addresses []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the files: %w", err)
	}
	for i, address := range addresses {
		u, err := url.Parse(address)
		if err != nil {
			return fmt.Errorf("reading an address: %w", err)
		}
		if err := fetch(ctx, u, filepath.Join(dir, fmt.Sprintf("%03d-%s", i, fileName(u)))); err != nil {
			return fmt.Errorf("fetching %s: %w", u.Redacted(), err)
		}
	}
	return nil
}

// fetch downloads the file at u. The file appears only when it is complete.
func fetch(ctx context.Context, u *url.URL, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", answer.Status)
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".part-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	if _, err := io.Copy(part, answer.Body); err != nil {
		part.Close()
		return err
	}
	if err := part.Close(); err != nil {
		return err
	}
	if err := os.Chmod(part.Name(), 0o644); err != nil { // TensorBoard may run as another user
		return err
	}
	return os.Rename(part.Name(), file)
}

// fileName returns the last element of the path of u; "_" if the path is empty.
func fileName(u *url.URL) string {
	name := path.Base(path.Clean("/" + u.Path))
	if name == "/" {
		return "_"
	}
	return name
}
