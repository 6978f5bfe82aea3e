// Command s3server is an object store for tests that serves the files of a directory as one bucket. It is a separate
// module, so that its dependencies are not dependencies of the product.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func main() {
	listen := flag.String("listen", ":9000", "address to serve at")
	key := flag.String("access-key", "", "the one access key that may read")
	bucket := flag.String("bucket", "", "name of the bucket")
	dir := flag.String("dir", "", "directory of the bucket's files")
	flag.Parse()
	if err := serve(*listen, *key, *bucket, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func serve(listen, key, bucket, dir string) error {
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		return fmt.Errorf("making the bucket: %w", err)
	}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return put(backend, bucket, dir, path)
	}); err != nil {
		return fmt.Errorf("filling the bucket: %w", err)
	}
	s := &http.Server{Addr: listen, Handler: only(key, gofakes3.New(backend).Server()), ReadHeaderTimeout: time.Second}
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func put(backend gofakes3.Backend, bucket, dir, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	_, err = backend.PutObject(bucket, filepath.ToSlash(name), nil, f, info.Size(), nil)
	return err
}

// only returns a handler that passes a request on to h only if the request names the access key. The store itself
// admits all requests.
func only(key string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), " Credential="+key+"/") {
			http.Error(w, "AccessDenied", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
