package e2btest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// all describes the sandboxes that have not ended and whose metadata hold every pair of want, the newest first.
func (s *Server) all(want map[string]string, states []string) []listed {
	s.mu.Lock()
	var all []*sandbox
	for _, b := range s.sandboxes {
		all = append(all, b)
	}
	s.mu.Unlock()
	out := []listed{}
	for _, b := range all {
		b.mu.Lock()
		l := b.listed()
		b.mu.Unlock()
		if !slices.Contains(states, l.State) {
			continue
		}
		match := true
		for k, v := range want {
			got, ok := l.Metadata[k]
			match = match && ok && got == v
		}
		if match {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b listed) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), strings.Compare(a.SandboxID, b.SandboxID))
	})
	return out
}

// metadataFilter decodes the value of the query's metadata: pairs whose parts are encoded once more, in a query that is
// encoded again as a whole.
func metadataFilter(query url.Values) (map[string]string, error) {
	text, err := url.QueryUnescape(query.Get("metadata"))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "Error when parsing metadata: %v", err)
	}
	if text == "" {
		return nil, nil
	}
	want := map[string]string{}
	for pair := range strings.SplitSeq(text, "&") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, refuse(http.StatusBadRequest, "invalid metadata filter: %q is no pair", pair)
		}
		for _, part := range []*string{&k, &v} {
			if *part, err = url.QueryUnescape(*part); err != nil {
				return nil, refuse(http.StatusBadRequest, "Error when parsing metadata: %v", err)
			}
		}
		want[k] = v
	}
	return want, nil
}

func (s *Server) listV1(w http.ResponseWriter, r *http.Request) error {
	want, err := metadataFilter(r.URL.Query())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.all(want, []string{Running}))
	return nil
}

func (s *Server) listV2(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	want, err := metadataFilter(query)
	if err != nil {
		return err
	}
	states := []string{Running, Paused}
	if given := query["state"]; len(given) > 0 {
		states = strings.Split(strings.Join(given, ","), ",")
		for _, state := range states {
			if state != Running && state != Paused {
				return refuse(http.StatusBadRequest, "Error when parsing request: %q is no state", state)
			}
		}
	}
	limit := 100
	if given := query.Get("limit"); given != "" {
		if limit, err = strconv.Atoi(given); err != nil || limit < 1 || limit > 100 {
			return refuse(http.StatusBadRequest, "Error when parsing request: limit must be between 1 and 100")
		}
	}
	list := s.all(want, states)
	running := 0
	for _, l := range list {
		if l.State == Running {
			running++
		}
	}
	if template := query.Get("template"); template != "" {
		list = slices.DeleteFunc(list, func(l listed) bool { return l.TemplateID != template })
	}
	if query.Get("order") == "asc" {
		slices.Reverse(list)
	}
	if token := query.Get("nextToken"); token != "" {
		b, err := base64.RawURLEncoding.DecodeString(token)
		last, id, ok := strings.Cut(string(b), "__")
		at, terr := time.Parse(time.RFC3339Nano, last)
		if err != nil || !ok || terr != nil {
			return refuse(http.StatusBadRequest, "Invalid next token")
		}
		// What follows the last one of the page before, whether that still exists or not.
		list = slices.DeleteFunc(list, func(l listed) bool {
			order := cmp.Or(at.Compare(l.StartedAt), strings.Compare(l.SandboxID, id))
			if query.Get("order") == "asc" {
				order = -order
			}
			return order <= 0
		})
	}
	if len(list) > limit {
		list = list[:limit]
		last := list[limit-1]
		w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(last.StartedAt.Format(time.RFC3339Nano)+"__"+last.SandboxID)))
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(running))
	writeJSON(w, http.StatusOK, list)
	return nil
}

// seconds returns a time of the query, or the fallback.
func seconds(query url.Values, name string, fallback int64) (int64, error) {
	given := query.Get(name)
	if given == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "Error when parsing request: %s: %v", name, err)
	}
	return n, nil
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	start, err := seconds(r.URL.Query(), "start", 0)
	if err != nil {
		return err
	}
	end, err := seconds(r.URL.Query(), "end", 1<<62)
	if err != nil {
		return err
	}
	b, err := s.locked(r)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.state == Running {
		b.sample()
	}
	out := []metric{}
	for _, m := range b.samples {
		if m.TimestampUnix >= start && m.TimestampUnix <= end {
			out = append(out, m)
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) allMetrics(w http.ResponseWriter, r *http.Request) error {
	ids := strings.Split(r.URL.Query().Get("sandbox_ids"), ",")
	if len(ids) > 100 {
		return refuse(http.StatusBadRequest, "Too many sandboxes requested, maximum is 100")
	}
	out := map[string]metric{}
	for _, id := range ids {
		b := s.find(id)
		if b == nil {
			continue
		}
		b.mu.Lock()
		if b.state == Running {
			b.sample()
		}
		if n := len(b.samples); n > 0 {
			out[b.id] = b.samples[n-1]
		}
		b.mu.Unlock()
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": out})
	return nil
}

// logs answers with what the daemon has logged.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	b, err := s.locked(r)
	if err != nil {
		return err
	}
	id := b.id
	b.mu.Unlock()
	type entry struct {
		Timestamp time.Time         `json:"timestamp"`
		Level     string            `json:"level"`
		Message   string            `json:"message"`
		Fields    map[string]string `json:"fields"`
	}
	out := []entry{}
	lines := bufio.NewScanner(bytes.NewReader([]byte(s.DaemonLog(id))))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() && len(out) < 1000 {
		var raw map[string]json.RawMessage
		if json.Unmarshal(lines.Bytes(), &raw) != nil {
			continue // bwrap's own words
		}
		e := entry{Fields: map[string]string{}}
		_ = json.Unmarshal(raw["time"], &e.Timestamp)
		_ = json.Unmarshal(raw["level"], &e.Level)
		_ = json.Unmarshal(raw["msg"], &e.Message)
		e.Level = strings.ToLower(e.Level)
		for k, v := range raw {
			if k != "time" && k != "level" && k != "msg" {
				e.Fields[k] = string(v)
			}
		}
		out = append(out, e)
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": out})
	return nil
}
