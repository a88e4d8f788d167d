package app_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/app"
)

// A changed policy file holds without a restart; a bad one is shown, and changes
// nothing.
func TestServerFollowsItsPolicyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	save := func(rest string) {
		require.NoError(t, os.WriteFile(path, []byte("version: 1\npolicies: [{name: p, side: server, "+rest+"}]\n"), 0o600))
	}
	save("exempt: true")
	a := start(t, "", app.Config{PolicyFile: path})
	status := func() int {
		resp, err := http.Get(a.URL() + "/delay/0")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, status())

	save("bulkhed: {}")
	require.Eventually(t, func() bool { return a.Guard().Snapshot().Policies.Failed == 1 }, patience, 10*time.Millisecond)
	assert.Contains(t, a.Guard().Snapshot().Policies.Error, `did you mean "bulkhead"?`)
	require.Equal(t, http.StatusOK, status())

	save("breaker: {minCalls: 1, failureStatus: [200]}")
	require.Eventually(t, func() bool { return a.Guard().Snapshot().Policies.Reloads == 1 }, patience, 10*time.Millisecond)
	require.Equal(t, http.StatusOK, status())
	require.Equal(t, http.StatusServiceUnavailable, status())
	assert.Empty(t, a.Guard().Snapshot().Policies.Error)
}
