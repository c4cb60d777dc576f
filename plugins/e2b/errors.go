package main

import (
	"errors"
	"io"
	"net"

	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/sdk"
)

// typed makes of an error of the service one that tells a user what to do. Other errors it leaves alone.
func typed(err error, what string) error {
	var ours *sdk.Error
	var e *control.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
		return err
	case envd.Gone(err):
		return gone(what, err)
	case !errors.As(err, &e):
		var d *envd.Error
		if errors.As(err, &d) {
			return &sdk.Error{Reason: daemonReason(d), Summary: what + ": " + d.Error(), Err: err, Retryable: d.Status == 429 || d.Status >= 500}
		}
		if broken(err) {
			return sdk.Errorf(sdk.ReasonUnavailable, "%s: the connection to the machine broke: %w", what, err).WithFix("see whether the service can be reached from here (hutch doctor), and try again")
		}
		return err
	}
	out := &sdk.Error{Summary: what + ": " + e.Error(), Err: err}
	switch e.Kind() {
	case control.Key:
		out.Reason, out.Summary = sdk.ReasonDenied, what+": the service does not take the API key: "+e.Message
		out.Fix = "look at " + envKey + ", or api_key in the backend block; keys are at https://e2b.dev/dashboard"
	case control.Access:
		out.Reason = sdk.ReasonDenied
		out.Fix = "use a template, and ask for features, that the key's team may use"
	case control.Quota:
		out.Reason, out.Retryable = sdk.ReasonQuota, true
		out.Fix = "end sandboxes that are not needed (hutch ps, hutch rm, hutch gc), run fewer at once (-j), or ask the service for more"
	case control.Rate:
		out.Reason, out.Retryable = sdk.ReasonQuota, true
		out.Fix = "the service takes no more calls just now: try again in a while, or run fewer at once (-j)"
	case control.Capacity:
		out.Reason, out.Retryable = sdk.ReasonQuota, true
		out.Fix = "the service has no room just now: try again in a while"
	case control.Template:
		out.Reason, out.Path = sdk.ReasonConfig, "template"
		out.Fix = "name a template that exists, by its id or alias"
	case control.Gone:
		return gone(what, err)
	case control.Request:
		out.Reason = sdk.ReasonConfig
	case control.State:
		out.Reason, out.Retryable = sdk.ReasonUnavailable, true
	default:
		out.Reason, out.Retryable = sdk.ReasonUnavailable, true
		out.Fix = "see whether the service can be reached from here (hutch doctor), and try again"
	}
	return out
}

// broken distinguishes a connection that broke from what else may be wrong.
func broken(err error) bool {
	var n net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &n)
}

// gone says that the machine of a sandbox is not there any more.
func gone(what string, err error) error {
	return &sdk.Error{Reason: sdk.ReasonNotFound, Err: err,
		Summary: what + ": the sandbox's machine is gone: it was ended, or the service's time for it was over",
		Fix:     "make a new sandbox; a longer timeout in the backend block keeps one longer that hutch does not work in"}
}

// daemonReason classifies an answer of a machine's daemon.
func daemonReason(e *envd.Error) sdk.Reason {
	switch {
	case e.Status == 401 || e.Status == 403:
		return sdk.ReasonDenied
	case e.Status == 429 || e.Status == 507:
		return sdk.ReasonQuota
	case e.Status == 404:
		return sdk.ReasonNotFound
	case e.Status == 400:
		return sdk.ReasonConfig
	}
	return sdk.ReasonUnavailable
}
