package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/confined"
)

// userNamespaceError explains why a holder cannot be started.
func userNamespaceError(err error) error {
	if e := usedUp(err.Error()); e != nil {
		e.Err = err
		return e
	}
	return &sdk.Error{Reason: sdk.ReasonMissing, Summary: "this machine lets nobody make user namespaces: " + err.Error(),
		Err: err, Fix: namespaceFix()}
}

// usedUp recognises, in what the kernel or bwrap says, that something has been used up, so that nothing is missing; nil
// for anything else.
func usedUp(words string) *sdk.Error {
	for _, c := range []struct{ errno, what, fix string }{
		{"too many open files in system", "the open files of this machine are used up",
			"close some, or raise sysctl fs.file-max"},
		{"too many open files", "the file descriptors of hutch's backend are used up",
			"run fewer at once with -j, or raise the limit with ulimit -n"},
		{"resource temporarily unavailable", "the processes that this user may have are used up",
			"end some, run fewer at once with -j, or raise the limit with ulimit -u"},
		{"cannot allocate memory", "this machine has no memory left", "end something, or run fewer at once with -j"},
	} {
		if strings.Contains(strings.ToLower(words), c.errno) {
			return &sdk.Error{Reason: sdk.ReasonUnavailable, Summary: c.what + ": " + words, Fix: c.fix}
		}
	}
	return nil
}

// namespaceFix says what most probably stands in the way of user namespaces.
// AppArmor on Ubuntu lets anybody make one, and then lets nobody mount in it.
func namespaceFix() string {
	switch {
	case restricted("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
		return "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give hutch-backend-bwrap an AppArmor " +
			"profile that allows userns"
	case restricted("/proc/sys/kernel/unprivileged_userns_clone", "0"):
		return "sudo sysctl kernel.unprivileged_userns_clone=1"
	case restricted("/proc/sys/user/max_user_namespaces", "0"):
		return "sudo sysctl user.max_user_namespaces=15000"
	case confined.Here():
		return confined.Fix()
	}
	return askDoctor
}

// askDoctor is the fix of an error of which nothing more is known. Doctor itself has better advice.
const askDoctor = "hutch doctor bwrap tries each part by itself"

// doubtful reports whether sandboxes may be impossible here: only an attempt shows it, since filters and sysctls
// differ.
func doubtful() bool { return confined.Here() || namespaceFix() != askDoctor }

// refused explains what the kernel refuses in a container. Other errors stay as they are.
func refused(err error) error {
	if _, typed := asError(err); err == nil || typed || !errors.Is(err, fs.ErrPermission) || !confined.Here() {
		return err
	}
	return &sdk.Error{Reason: sdk.ReasonMissing, Summary: "the sandbox could not be made: " + err.Error(), Err: err,
		Fix: namespaceFix()}
}

// restricted says whether a sysctl has the value that gets in the way.
func restricted(path, value string) bool {
	b, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(b)) == value
}

// asError finds the typed error in err's chain.
func asError(err error) (*sdk.Error, bool) {
	var e *sdk.Error
	ok := errors.As(err, &e)
	return e, ok
}
