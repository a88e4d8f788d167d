package jaegertest_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/watertight-go/watertight/internal/program"

	// What the programs are made of. go test would otherwise not know that a
	// result is out of date when one of these changes.
	_ "github.com/watertight-go/watertight/adapters/resty"
	_ "github.com/watertight-go/watertight/examples/internal/app"
)

const (
	// patience is how long a test waits for what should come soon.
	patience = 20 * time.Second
	// poll is how often it looks, where nothing announces it.
	poll = 20 * time.Millisecond
)

// build builds a program of the examples and returns where it is.
func build(t *testing.T, name string) string {
	t.Helper()
	return program.Build(t, filepath.Join("..", "..", name))
}
