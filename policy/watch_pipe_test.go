//go:build unix

package policy_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// A pipe in the place of the file, which nobody writes to, holds nothing up.
func TestWatchAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "watertight.yaml")
	pipe := func(t *testing.T) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }
	const refused = "which cannot be followed; put a regular file there, or read it once with Load"

	pipe(t)
	_, err := policy.Watch(path)
	require.ErrorContains(t, err, refused)
	require.ErrorContains(t, err, path)
	require.NoError(t, os.Remove(path))

	write(t, path, limiting("first"))
	synctest.Test(t, func(t *testing.T) {
		w, news := watch(t, path)
		require.NoError(t, os.Remove(path))
		pipe(t)
		time.Sleep(3 * time.Second)
		got := news()
		require.Len(t, got, 1)
		require.ErrorContains(t, got[0].err, refused)
		assert.Equal(t, "first", w.Set().Rules()[0].Name)

		require.NoError(t, os.Remove(path))
		write(t, path, limiting("second"))
		time.Sleep(3 * time.Second)
		got = news()
		require.Len(t, got, 1)
		assert.Equal(t, "second", got[0].name)
	})
}
