package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/sdk"
)

// Seconds is a duration that is a number of seconds in JSON, to the microsecond.
type Seconds time.Duration

// MarshalJSON implements [json.Marshaler].
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, math.Round(time.Duration(s).Seconds()*1e6)/1e6, 'f', -1, 64), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Seconds) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > float64(math.MaxInt64)/1e9 {
		return fmt.Errorf("%q is no number of seconds", b)
	}
	*s = Seconds(math.Round(f*1e6) * 1e3)
	return nil
}

// Duration returns s as a [time.Duration].
func (s Seconds) Duration() time.Duration { return time.Duration(s) }

// EncodeLine writes r as one line of JSON, for JSON Lines.
func (r *Result) EncodeLine(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// Encode writes r as indented JSON.
func (r *Result) Encode(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Decode reads a result and refuses one of another major version.
func Decode(data []byte) (*Result, error) {
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("the result has schema %q, this hutch reads %q", r.Schema, Schema)
	}
	return &r, nil
}

// Text repairs the kept end of a stream: a character that was cut at the start is dropped, and every byte that is not
// part of a UTF-8 character becomes U+FFFD.
func Text(tail []byte, cut bool) string {
	if cut {
		for i := 0; i < 3 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
			tail = tail[1:]
		}
	}
	return strings.ToValidUTF8(string(tail), "\ufffd")
}

// normal fills in the empty lists that the schema promises, so that readers never meet null.
func (r *Result) normal() {
	r.Schema = Schema
	if r.Command == nil {
		r.Command = []string{}
	}
	if r.ExpectFailures == nil {
		r.ExpectFailures = []ExpectFailure{}
	}
	if r.Limits == nil {
		r.Limits = []Limit{}
	}
	if r.Outputs == nil {
		r.Outputs = []outputs.Output{}
	}
	if r.Changes == nil {
		r.Changes = []Change{}
	}
}

// Unread is the result of a call that never came to a run, because its file or its flags are wrong: it has no id and no
// record. file is the run file as it was named, "" for none, code what hutch ends with.
func Unread(file string, why *Failure, code int) *Result {
	now := time.Now().UTC()
	why.Phase, why.Reason = "read", sdk.ReasonConfig
	r := &Result{Name: cmp.Or(file, "run"), File: file, Cause: sdk.CauseSetupFailed, Started: now, Ended: now, Error: why}
	r.Seal(code)
	return r
}

// Seal completes r: the schema, empty lists for null, and OK, TimedOut and Status as they follow from the rest. code
// is what the backend gave as the code of the command, 0 when there was none.
func (r *Result) Seal(code int) {
	r.normal()
	r.TimedOut = r.Cause == sdk.CauseTimeout
	r.OK = ok(r)
	r.Status = status(r, code)
}
