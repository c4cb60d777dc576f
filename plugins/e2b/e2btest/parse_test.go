package e2btest

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// FuzzMetadataFilter checks that what the SDK encodes is what the filter finds, and that nothing else breaks it.
func FuzzMetadataFilter(f *testing.F) {
	f.Add("run", "a b=&%c/ü")
	f.Add("", "")
	f.Add("%", "+%2")
	f.Fuzz(func(t *testing.T, k, v string) {
		sent := url.QueryEscape(url.QueryEscape(k) + "=" + url.QueryEscape(v))
		got, err := metadataFilter(url.Values{"metadata": {sent}})
		if err != nil || len(got) != 1 || got[k] != v {
			t.Errorf("%q=%q: %q %v", k, v, got, err)
		}
		_, _ = metadataFilter(url.Values{"metadata": {k + v}})
	})
}

// FuzzMeant checks that no request panics and that one for a sandbox always has a port.
func FuzzMeant(f *testing.F) {
	f.Add("49983-iabc.e2b.app:443", "", "")
	f.Add("127.0.0.1:80", "iabc", "8080")
	f.Add("[::1]", "iabc", "-1")
	f.Fuzz(func(t *testing.T, host, id, port string) {
		r := &http.Request{Host: host, Header: http.Header{}, URL: &url.URL{Path: "/"}}
		r.Header.Set("E2b-Sandbox-Id", id)
		r.Header.Set("E2b-Sandbox-Port", port)
		to, n, edge, problem := meant(r)
		if edge && problem == "" && (to == "" || n < 1 || n > 65535) || !edge && problem != "" {
			t.Errorf("%q %q %q: %q %d %v %q", host, id, port, to, n, edge, problem)
		}
	})
}

// FuzzCutMessages checks that as many whole messages get through as asked for, however the stream is cut into writes.
func FuzzCutMessages(f *testing.F) {
	f.Add([]byte("abcdef"), uint8(2), uint8(3), uint8(1))
	f.Add([]byte{}, uint8(0), uint8(1), uint8(9))
	f.Fuzz(func(t *testing.T, text []byte, size, step, count uint8) {
		var stream []byte
		var ends []int
		for rest := text; len(rest) > 0; {
			n := min(len(rest), int(size)+1)
			stream = binary.BigEndian.AppendUint32(append(stream, 0), uint32(n))
			stream = append(stream, rest[:n]...)
			ends = append(ends, len(stream))
			rest = rest[n:]
		}
		got := httptest.NewRecorder()
		w := &cutWriter{ResponseWriter: got, left: int64(count), messages: true, quiet: true}
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), int(step)+1)
			if _, err := w.Write(rest[:n]); err != nil {
				break
			}
			rest = rest[n:]
		}
		want := 0
		if n := min(int(count), len(ends)); n > 0 {
			want = ends[n-1]
		}
		if !bytes.Equal(got.Body.Bytes(), stream[:want]) {
			t.Errorf("%d bytes got through, want %d", got.Body.Len(), want)
		}
	})
}
