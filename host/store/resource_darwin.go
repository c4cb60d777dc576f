package store

import (
	"context"
	"fmt"
	"os"
)

// removeResource removes something that an intent of ours names; here only directories and sockets exist.
func removeResource(_ context.Context, r Resource) error {
	switch r.Kind {
	case ResourceDir:
		return removeAll(r.Path)
	case ResourceSocket:
		if err := os.Remove(r.Path); err != nil && !os.IsNotExist(err) {
			return err
		}
		return nil
	}
	return fmt.Errorf("a %s cannot be removed on this system", r.Kind)
}
