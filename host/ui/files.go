package ui

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
)

const (
	maxPicture = 10 << 20 // bytes of a picture that is shown
	maxShown   = 12       // pictures and tables on a page, together
	maxTable   = 1 << 20  // bytes of a table that are read
	maxRows    = 200
	maxColumns = 40
)

// pictures are the types that a browser may show. Others, such as SVG and HTML, can hold script or refer to other
// places: they are downloaded.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// fileServer serves what runs left, on a port that has nothing else, so that a file which a browser takes for a page
// is one of another origin: it sees no page of ours and has no cookie. A file's address holds a code that only our
// pages know.
type fileServer struct {
	port int
	key  []byte
	open func(run, name string) (*os.File, error)
}

func newFileServer(port int, st *store.Store) *fileServer {
	return &fileServer{port: port, key: []byte(rand.Text()),
		open: func(run, name string) (*os.File, error) { return openOutput(st, run, name) }}
}

// openOutput opens a file that a run left.
func openOutput(st *store.Store, run, name string) (*os.File, error) {
	rec, err := st.Load(run)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Join(rec.Dir, "output"))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if fi, err := root.Lstat(name); err != nil || !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return root.Open(name)
}

// code is what the address of a file has to have.
func (f *fileServer) code(run, name string) string {
	sum := hmac.New(sha256.New, f.key)
	_, _ = fmt.Fprintf(sum, "%s\n%s", run, name)
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}

// address is where a page that was asked for by the name host finds a file.
func (f *fileServer) address(host, run, name string) string {
	at, _, _ := strings.Cut(host, ":")
	return fmt.Sprintf("http://%s:%d/%s/%s/%s", at, f.port, run, f.code(run, name), ref(name))
}

// filePolicy holds for every file: it is a page of no origin, without script, forms and anything from elsewhere.
const filePolicy = "sandbox; default-src 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (f *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": filePolicy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Referrer-Policy":            "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-site", "Cache-Control": "no-store",
	} {
		h.Set(name, value)
	}
	part := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var name string
	var err error
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case r.Host != fmt.Sprintf("127.0.0.1:%d", f.port) && r.Host != fmt.Sprintf("localhost:%d", f.port):
		refuse(w, http.StatusForbidden, "this host is not served")
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuse(w, http.StatusMethodNotAllowed, "files can only be read")
		return
	case r.Header.Get("Origin") != "" || site == "cross-site":
		refuse(w, http.StatusForbidden, "another site asked for this file")
		return
	case len(part) == 3:
		name, err = deref(part[2])
	}
	if name == "" || err != nil || !same(part[1], f.code(part[0], name)) {
		refuse(w, http.StatusNotFound, "no such file; hutch ui was started again, or the address is wrong")
		return
	}
	file, err := f.open(part[0], name)
	if err != nil {
		refuse(w, http.StatusNotFound, "no such file: "+err.Error())
		return
	}
	defer file.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(file, head)
	kind := http.DetectContentType(head[:n])
	if !slices.Contains(pictures, kind) {
		kind = "application/octet-stream"
		h.Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(path.Base(name)))
	}
	h.Set("Content-Type", kind)
	http.ServeContent(w, r, "", time.Time{}, file)
}

// shownFile is an output with what of it is on the page.
type shownFile struct {
	outputs.Output
	Address string
	Picture bool
	Table   *table
}

// table is the beginning of a file of comma or tab separated values.
type table struct {
	Head []string
	Rows [][]string
	More string // what is not shown; "" for nothing
}

// shownFiles are the outputs of a run, of which the first pictures and tables are shown.
func (s *Server) shownFiles(host, run string, list []outputs.Output) (files []shownFile) {
	shown := 0
	for _, o := range list[:min(len(list), maxListed)] {
		f := shownFile{Output: o, Address: s.files.address(host, run, o.Path)}
		if shown < maxShown {
			f.look(func() (*os.File, error) { return s.files.open(run, o.Path) })
			if f.Picture || f.Table != nil {
				shown++
			}
		}
		files = append(files, f)
	}
	return files
}

// look finds out whether a file can be shown.
func (f *shownFile) look(open func() (*os.File, error)) {
	comma := map[string]rune{".csv": ',', ".tsv": '\t'}[strings.ToLower(path.Ext(f.Path))]
	if comma == 0 && f.Size > maxPicture {
		return
	}
	file, err := open()
	if err != nil {
		return
	}
	defer file.Close()
	if comma != 0 {
		b, _ := io.ReadAll(io.LimitReader(file, maxTable))
		f.Table = readTable(b, comma, f.Size > maxTable)
		return
	}
	head := make([]byte, 512)
	n, _ := io.ReadFull(file, head)
	f.Picture = slices.Contains(pictures, http.DetectContentType(head[:n]))
}

// readTable reads the beginning of a table; nil where it has no row. cut says that the file goes on.
func readTable(b []byte, comma rune, cut bool) *table {
	if cut { // the last line may be a part of one
		b = b[:max(bytes.LastIndexByte(b, '\n'), 0)]
	}
	r := csv.NewReader(bytes.NewReader(b))
	r.Comma, r.FieldsPerRecord, r.LazyQuotes = comma, -1, true
	t := &table{}
	more, wide := 0, false
	for {
		row, err := r.Read()
		if err != nil {
			break
		}
		if wide = wide || len(row) > maxColumns; len(t.Rows) >= maxRows {
			more++
			continue
		}
		cells := make([]string, min(len(row), maxColumns))
		for i := range cells {
			cells[i] = termsafe.Line(clip(row[i]))
		}
		if t.Head == nil {
			t.Head = cells
			continue
		}
		t.Rows = append(t.Rows, cells)
	}
	if t.Head == nil {
		return nil
	}
	switch {
	case cut:
		t.More = "the file goes on"
	case more > 0:
		t.More = plural(more, "more row")
	}
	if wide {
		t.More = strings.TrimPrefix(t.More+"; columns after "+strconv.Itoa(maxColumns)+" are left out", "; ")
	}
	return t
}
