package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// statusError is an error with its HTTP status.
type statusError struct {
	status int
	error
}

func failed(status int, format string, args ...any) error {
	return &statusError{status, fmt.Errorf(format, args...)}
}

// written describes a file that was uploaded.
type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// files serves GET and POST /files: one whole file, as it is.
func (d *Daemon) files(w http.ResponseWriter, r *http.Request) {
	serve := map[string]func(http.ResponseWriter, *http.Request, *account) error{
		http.MethodGet: d.download, http.MethodPost: d.upload,
	}[r.Method]
	if serve == nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	who, err := d.account(r.URL.Query().Get("username"))
	if err != nil {
		httpError(w, http.StatusUnauthorized, err)
		return
	}
	var status *statusError
	switch err := serve(w, r, who); {
	case errors.As(err, &status):
		httpError(w, status.status, err)
	case err != nil:
		httpError(w, http.StatusInternalServerError, err)
	}
}

func (d *Daemon) download(w http.ResponseWriter, r *http.Request, who *account) error {
	name := r.URL.Query().Get("path")
	path, err := d.resolve(name, who)
	if err != nil {
		return failed(http.StatusBadRequest, "error expanding and resolving path '%s': %w", name, err)
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failed(http.StatusNotFound, "path '%s' does not exist", path)
	case err != nil:
		return fmt.Errorf("error checking path '%s': %w", path, err)
	case st.IsDir():
		return failed(http.StatusBadRequest, "path '%s' is a directory", path)
	}
	if encodings := r.Header.Get("Accept-Encoding"); strings.Contains(encodings, "identity;q=0") {
		return failed(http.StatusNotAcceptable, "no acceptable encoding in '%s'", encodings)
	}
	f, err := os.Open(path) // like envd's, this waits for the writer of a FIFO
	if err != nil {
		return fmt.Errorf("error opening file '%s': %w", path, err)
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, filepath.Base(path), st.ModTime(), f)
	return nil
}

// upload writes the body of a request to a file.
func (d *Daemon) upload(w http.ResponseWriter, r *http.Request, who *account) error {
	query := r.URL.Query()
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	encoding := r.Header.Get("Content-Encoding")
	switch {
	case kind != "application/octet-stream":
		return failed(http.StatusBadRequest, "unsupported content type: %s, the local server expects application/octet-stream",
			r.Header.Get("Content-Type"))
	case encoding != "" && encoding != "identity":
		return failed(http.StatusBadRequest, "unsupported Content-Encoding: %s", encoding)
	case !query.Has("path"):
		return failed(http.StatusBadRequest, "path query parameter is required for raw body upload")
	}
	path, err := d.resolve(query.Get("path"), who)
	if err != nil {
		return failed(http.StatusBadRequest, "error resolving path: %w", err)
	}
	if err := store(path, r.Body, r.ContentLength); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, []written{{Name: filepath.Base(path), Path: path, Type: "file"}})
	return nil
}

// store writes a file in place: its old content is lost at once, and an interrupted upload leaves a short file.
func store(path string, content io.Reader, announced int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("error ensuring directories: path is a file: %s", filepath.Dir(path))
	} else if err != nil {
		return fmt.Errorf("error ensuring directories: %w", err)
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return failed(http.StatusBadRequest, "path is a directory: %s", path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("error opening file: %w", err)
	}
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Close())
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return failed(http.StatusInsufficientStorage,
			"attempted to write %d bytes: not enough disk space available", announced)
	case err != nil:
		return fmt.Errorf("error writing file: %w", err)
	}
	return nil
}
