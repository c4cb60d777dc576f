package session

import (
	"os"
	"testing"
	"time"

	"github.com/hutch-run/hutch/internal/testbound"
)

func TestMain(m *testing.M) { os.Exit(testbound.Run(m, 5*time.Minute)) }
