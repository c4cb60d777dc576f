package e2btest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// apiError is an error as the control plane tells it.
type apiError struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

func refuse(code int, format string, args ...any) error {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...)}
}

func noSandbox(id string) error {
	return refuse(http.StatusNotFound, "Sandbox %q doesn't exist or you don't have access to it", id)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

func writeError(w http.ResponseWriter, err error) {
	var known *apiError
	if !errors.As(err, &known) {
		known = &apiError{Code: http.StatusInternalServerError, Message: err.Error(), ErrorCode: "internal_server_error"}
	}
	writeJSON(w, known.Code, known)
}

// readJSON decodes a request's body. One that is empty is all zero where it may be left out.
func readJSON(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<20)).Decode(v)
	if err == io.EOF && optional {
		return nil
	}
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return refuse(http.StatusRequestEntityTooLarge, "request body is too large: at most %d bytes", tooBig.Limit)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "Error when parsing request: %v", err)
	}
	return nil
}

// newSandbox is the body of POST /sandboxes and /v2/sandboxes.
type newSandbox struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int32            `json:"timeout"` // seconds
	Secure          bool              `json:"secure"`  // v1 only; in v2 all are
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	Internet        *bool             `json:"allow_internet_access"`
	Network         *network          `json:"network"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	VolumeMounts []json.RawMessage `json:"volumeMounts"`
	MCP          json.RawMessage   `json:"mcp"`
}

// network is kept and given back; only whether the public may come in is looked at.
type network struct {
	AllowOut           []string        `json:"allowOut,omitempty"`
	DenyOut            []string        `json:"denyOut,omitempty"`
	AllowPublicTraffic *bool           `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    *string         `json:"maskRequestHost,omitempty"`
	Rules              json.RawMessage `json:"rules,omitempty"`
	HTTPSPorts         []int           `json:"httpsPorts,omitempty"`
}

// handle is what creating, connecting and resuming answer: how to reach a sandbox.
type handle struct {
	TemplateID         string  `json:"templateID"`
	SandboxID          string  `json:"sandboxID"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

// listed is a sandbox in a list.
type listed struct {
	TemplateID   string            `json:"templateID"`
	Alias        string            `json:"alias,omitempty"`
	SandboxID    string            `json:"sandboxID"`
	ClientID     string            `json:"clientID"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int               `json:"memoryMB"`
	DiskSizeMB   int               `json:"diskSizeMB"`
	State        string            `json:"state"`
	EnvdVersion  string            `json:"envdVersion"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	VolumeMounts []struct{}        `json:"volumeMounts"`
}

// detail is one sandbox.
type detail struct {
	listed
	EnvdAccessToken string    `json:"envdAccessToken,omitempty"`
	Domain          *string   `json:"domain"`
	Internet        *bool     `json:"allowInternetAccess,omitempty"`
	Network         *network  `json:"network,omitempty"`
	Lifecycle       lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"` // "kill" or "pause"
	AutoResume bool   `json:"autoResume"`
}

// metric is one sample of a sandbox; sizes are bytes.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       uint64    `json:"memUsed"`
	MemTotal      uint64    `json:"memTotal"`
	MemCache      uint64    `json:"memCache"`
	DiskUsed      uint64    `json:"diskUsed"`
	DiskTotal     uint64    `json:"diskTotal"`
}
