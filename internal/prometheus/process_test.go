package prometheus_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/watertight-go/watertight/internal/program"
)

const (
	// patience is how long a test waits for what should come soon.
	patience = 30 * time.Second
	// poll is how often it looks, where nothing announces it.
	poll = 100 * time.Millisecond
)

// build builds the example server and returns where it is. It is a program of another
// module, which a test cannot import.
func build(t *testing.T) string {
	t.Helper()
	return program.Build(t, filepath.Join(root, "examples", "server"),
		filepath.Join(root, "examples", "internal", "app"), filepath.Join(root, "metrics"))
}
