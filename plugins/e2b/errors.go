package main

import (
	"errors"
	"io"
	"net"

	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/sdk"
)

const (
	keyPlace = envKey + ", or api_key in the backend block; keys are at https://e2b.dev/dashboard"
	reachFix = "see whether the service can be reached from here (hutch doctor), and try again"
)

// advice says what to do about each kind of refusal by the control plane.
var advice = map[control.Kind]sdk.Error{
	control.Key:    {Reason: sdk.ReasonDenied, Fix: "look at " + keyPlace},
	control.Access: {Reason: sdk.ReasonDenied, Fix: "use a template, and ask for features, that the key's team may use"},
	control.Quota: {Reason: sdk.ReasonQuota, Retryable: true, Fix: "end sandboxes that are not needed (hutch ps, " +
		"hutch rm, hutch gc), run fewer at once (-j), or ask the service for more"},
	control.Rate: {Reason: sdk.ReasonQuota, Retryable: true,
		Fix: "the service takes no more calls just now: try again in a while, or run fewer at once (-j)"},
	control.Capacity: {Reason: sdk.ReasonQuota, Retryable: true,
		Fix: "the service has no room just now: try again in a while"},
	control.Template: {Reason: sdk.ReasonConfig, Path: "template", Fix: "name a template that exists, by its id or alias"},
	control.Request:  {Reason: sdk.ReasonConfig},
	control.State:    {Reason: sdk.ReasonUnavailable, Retryable: true},
	control.Service:  {Reason: sdk.ReasonUnavailable, Retryable: true, Fix: reachFix},
}

// typed turns an error of the service or of a machine's daemon into one that says what to do. Other errors it leaves
// alone.
func typed(err error, what string) error {
	var ours *sdk.Error
	var refused *control.Error
	var daemon *envd.Error
	var network net.Error
	switch {
	case err == nil, errors.As(err, &ours):
		return err
	case envd.Gone(err), errors.As(err, &refused) && refused.Kind() == control.Gone:
		return &sdk.Error{Reason: sdk.ReasonNotFound, Err: err,
			Summary: what + ": the sandbox's machine is gone: it was ended, or timed out at the service",
			Fix:     "make a new sandbox; a longer timeout in the backend block keeps an idle one longer"}
	case refused != nil:
		out := advice[refused.Kind()]
		out.Summary, out.Err = what+": "+refused.Error(), err
		if refused.Kind() == control.Key {
			out.Summary = what + ": the service does not take the API key: " + refused.Message
		}
		return &out
	case errors.As(err, &daemon):
		retryable := daemon.Status == 429 || daemon.Status >= 500
		return &sdk.Error{Reason: daemonReason(daemon), Summary: what + ": " + daemon.Error(), Err: err, Retryable: retryable}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return sdk.Errorf(sdk.ReasonUnavailable, "%s: the connection to the machine broke: %w", what, err).WithFix(reachFix)
	}
	return err
}

// daemonReason classifies an answer of a machine's daemon.
func daemonReason(e *envd.Error) sdk.Reason {
	switch e.Status {
	case 400:
		return sdk.ReasonConfig
	case 401, 403:
		return sdk.ReasonDenied
	case 404:
		return sdk.ReasonNotFound
	case 429, 507:
		return sdk.ReasonQuota
	}
	return sdk.ReasonUnavailable
}
