package backendcheck

import (
	"os"
	"testing"
	"time"

	"github.com/hutch-run/hutch/internal/testbackend"
)

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m, 5*time.Minute)) }
