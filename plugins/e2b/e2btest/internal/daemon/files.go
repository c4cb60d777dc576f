package daemon

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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

// files serves GET and POST /files.
func (d *Daemon) files(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	who, err := d.account(query.Get("username"))
	if err != nil {
		httpError(w, http.StatusUnauthorized, err)
		return
	}
	if r.Method == http.MethodGet {
		err = d.download(w, r, query.Get("path"), who)
	} else {
		err = d.upload(w, r, who)
	}
	var status *statusError
	switch {
	case errors.As(err, &status):
		httpError(w, status.status, err)
	case err != nil:
		httpError(w, http.StatusInternalServerError, err)
	}
}

func (d *Daemon) download(w http.ResponseWriter, r *http.Request, name string, who *account) error {
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
	encodings := r.Header.Get("Accept-Encoding")
	if strings.Contains(encodings, "identity;q=0") {
		return failed(http.StatusNotAcceptable, "no acceptable encoding in '%s'", encodings)
	}
	f, err := os.Open(path) // like envd's, this waits for the writer of a FIFO
	if err != nil {
		return fmt.Errorf("error opening file '%s': %w", path, err)
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(path)}))
	h.Set("Vary", "Accept-Encoding")
	h.Set("Content-Type", "application/octet-stream")
	if t := mime.TypeByExtension(filepath.Ext(path)); t != "" {
		h.Set("Content-Type", t)
	}
	if !strings.Contains(encodings, "gzip") || r.Header.Get("Range") != "" {
		http.ServeContent(w, r, filepath.Base(path), st.ModTime(), f)
		return nil
	}
	h.Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	if _, err := io.Copy(z, f); err != nil || z.Close() != nil {
		panic(http.ErrAbortHandler) // the answer has begun: it must not end well
	}
	return nil
}

// upload writes the files of a request: one as a plain body, or several as a form.
func (d *Daemon) upload(w http.ResponseWriter, r *http.Request, who *account) error {
	body, err := decoded(r)
	if err != nil {
		return failed(http.StatusBadRequest, "error decompressing request body: %w", err)
	}
	done := []written{}
	put := func(name string, content io.Reader) error {
		path, err := d.resolve(name, who)
		if err != nil {
			return failed(http.StatusBadRequest, "error resolving path: %w", err)
		}
		if slices.ContainsFunc(done, func(w written) bool { return w.Path == path }) {
			return failed(http.StatusBadRequest, "you cannot upload multiple files to the same path '%s' in one upload "+
				"request, only the first specified file was uploaded", path)
		}
		if err := store(path, content, r.ContentLength); err != nil {
			return err
		}
		done = append(done, written{Name: filepath.Base(path), Path: path, Type: "file"})
		return nil
	}
	query := r.URL.Query()
	name, named := query.Get("path"), query.Has("path")
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "application/octet-stream" && !named:
		err = failed(http.StatusBadRequest, "path query parameter is required for raw body upload")
	case kind == "application/octet-stream":
		err = put(name, body)
	case strings.HasPrefix(kind, "multipart/"):
		err = eachPart(multipart.NewReader(body, params["boundary"]), func(filename string, content io.Reader) error {
			if named {
				filename = name
			}
			return put(filename, content)
		})
	default:
		err = failed(http.StatusBadRequest, "unsupported content type: %s, expected multipart/form-data or "+
			"application/octet-stream", r.Header.Get("Content-Type"))
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, done)
	return nil
}

// decoded is the body of a request without its encoding.
func decoded(r *http.Request) (io.Reader, error) {
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		return gzip.NewReader(r.Body)
	default:
		return nil, fmt.Errorf("unsupported Content-Encoding: %s", encoding)
	}
}

// eachPart calls put for every part named file, with its file name as it was sent: a whole path.
func eachPart(r *multipart.Reader, put func(filename string, content io.Reader) error) error {
	for {
		part, err := r.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("error reading form: %w", err)
		}
		if part.FormName() != "file" {
			continue
		}
		// Part.FileName would return the last element only.
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil {
			return failed(http.StatusBadRequest, "error getting multipart custom part file name: %w", err)
		}
		if err := put(params["filename"], part); err != nil {
			return err
		}
	}
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
