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
	"strings"
	"syscall"
)

// statusError is an error with the HTTP status that tells it.
type statusError struct {
	status int
	error
}

func failed(status int, format string, args ...any) error {
	return &statusError{status, fmt.Errorf(format, args...)}
}

// written is what is said about a file that was uploaded.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// files serves GET and POST /files.
func (d *Daemon) files(w http.ResponseWriter, r *http.Request) {
	operation := map[string]string{http.MethodGet: "read", http.MethodPost: "write"}[r.Method]
	if operation == "" {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	if err := mayUse(r, query, d.settings().AccessToken, operation); err != nil {
		httpError(w, http.StatusUnauthorized, err)
		return
	}
	who, err := d.account(query.Get("username"))
	if err != nil {
		httpError(w, http.StatusUnauthorized, err)
		return
	}
	d.log.Debug("file", "operation", operation, "path", query.Get("path"), "user", who.name)
	if operation == "read" {
		err = d.download(w, r, query.Get("path"), who)
	} else {
		err = d.upload(w, r, query.Has("path"), query.Get("path"), who)
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
	encoding, ok := chooseEncoding(r.Header.Get("Accept-Encoding"))
	if !ok {
		return failed(http.StatusNotAcceptable, "no acceptable encoding in '%s'", r.Header.Get("Accept-Encoding"))
	}
	f, err := os.Open(path) // of a FIFO this waits for a writer, and so does envd
	if err != nil {
		return fmt.Errorf("error opening file '%s': %w", path, err)
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(path)}))
	h.Set("Vary", "Accept-Encoding")
	if encoding == "gzip" && r.Header.Get("Range") == "" {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Type", contentType(path))
		z := gzip.NewWriter(w)
		if _, err := io.Copy(z, f); err != nil {
			panic(http.ErrAbortHandler) // the answer has begun: all that is left is not to end it well
		}
		if err := z.Close(); err != nil {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	h.Set("Content-Type", contentType(path))
	http.ServeContent(w, r, filepath.Base(path), st.ModTime(), f)
	return nil
}

func contentType(path string) string {
	if t := mime.TypeByExtension(filepath.Ext(path)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// chooseEncoding returns "gzip" or "identity" for an Accept-Encoding header, and false when it allows neither.
func chooseEncoding(header string) (string, bool) {
	identity := true
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := strings.TrimSpace(params)
		refused := q == "q=0" || q == "q=0.0" || q == "q=0.00" || q == "q=0.000"
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip":
			if !refused {
				return "gzip", true
			}
		case "identity", "*":
			identity = !refused
		}
	}
	return "identity", identity
}

func (d *Daemon) upload(w http.ResponseWriter, r *http.Request, named bool, name string, who *account) error {
	var body io.Reader = r.Body
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return failed(http.StatusBadRequest, "error decompressing request body: %w", err)
		}
		defer z.Close()
		body = z
	default:
		return failed(http.StatusBadRequest, "error decompressing request body: unsupported Content-Encoding: %s", encoding)
	}
	metadata := map[string]string{}
	for key, values := range r.Header {
		if rest, ok := strings.CutPrefix(key, metadataHeader); ok && len(values) > 0 {
			metadata[strings.ToLower(rest)] = values[0]
		}
	}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	done := []written{}
	put := func(name string, content io.Reader) error {
		path, err := d.resolve(name, who)
		if err != nil {
			return failed(http.StatusBadRequest, "error resolving path: %w", err)
		}
		for _, w := range done {
			if w.Path == path {
				return failed(http.StatusBadRequest, "you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", path)
			}
		}
		if err := store(path, content, r.ContentLength, metadata); err != nil {
			return err
		}
		done = append(done, written{Name: filepath.Base(path), Path: path, Type: "file", Metadata: readMetadata(path)})
		return nil
	}
	switch {
	case kind == "application/octet-stream":
		if !named {
			return failed(http.StatusBadRequest, "path query parameter is required for raw body upload")
		}
		if err := put(name, body); err != nil {
			return err
		}
	case strings.HasPrefix(kind, "multipart/"):
		if err := eachPart(multipart.NewReader(body, params["boundary"]), func(filename string, content io.Reader) error {
			if named {
				filename = name
			}
			return put(filename, content)
		}); err != nil {
			return err
		}
	default:
		return failed(http.StatusBadRequest, "unsupported content type: %s, expected multipart/form-data or application/octet-stream", r.Header.Get("Content-Type"))
	}
	writeJSON(w, http.StatusOK, done)
	return nil
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
		// Part.FileName would give the last element only.
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil {
			return failed(http.StatusBadRequest, "error getting multipart custom part file name: %w", err)
		}
		if err := put(params["filename"], part); err != nil {
			return err
		}
	}
}

// store writes a file in place: what was there is lost at once, and what breaks off leaves a short file.
func store(path string, content io.Reader, announced int64, metadata map[string]string) error {
	if err := ensureDirs(filepath.Dir(path)); err != nil {
		return fmt.Errorf("error ensuring directories: %w", err)
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return failed(http.StatusBadRequest, "path is a directory: %s", path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return failed(http.StatusInsufficientStorage, "not enough inodes available: %w", err)
		}
		return fmt.Errorf("error opening file: %w", err)
	}
	_, err = io.Copy(f, content)
	if closed := f.Close(); err == nil {
		err = closed
	}
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return failed(http.StatusInsufficientStorage, "attempted to write %d bytes: not enough disk space available", announced)
	case err != nil:
		return fmt.Errorf("error writing file: %w", err)
	}
	if len(metadata) == 0 && readMetadata(path) == nil {
		return nil
	}
	return writeMetadata(path, metadata)
}
