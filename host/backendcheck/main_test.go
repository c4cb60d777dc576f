package backendcheck

import (
	"os"
	"testing"

	"github.com/hutch-run/hutch/internal/testbackend"
)

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m)) }
