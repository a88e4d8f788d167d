package transport_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

type nothing struct{}

func (nothing) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r, Header: http.Header{}}, nil
}

// What policies can ask for is what is sent.
func TestPoliciesSeePathQueryAndHeader(t *testing.T) {
	set, err := policy.Parse("test.yaml", []byte(`
version: 1
policies:
  - {name: path, match: [{path: {exact: "/a/b c"}}], per: policy, bulkhead: {maxConcurrent: 1}}
  - {name: query, match: [{query: {watch: {exact: "yes, please"}}}], per: policy, bulkhead: {maxConcurrent: 1}}
  - {name: tenants, per: header:X-Tenant, bulkhead: {maxConcurrent: 1}}
`))
	require.NoError(t, err)
	g := watertight.New(set)
	rt := transport.New(nothing{}, g)
	for _, target := range []string{"/a%2Fb%20c", "/other?watch=yes%2C+please", "/other?watch=no"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://up.test"+target, nil)
		require.NoError(t, err)
		r.Header.Set("X-Tenant", "acme")
		resp, err := rt.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	granted := map[string]uint64{}
	for _, c := range g.Snapshot().Compartments {
		granted[c.Policy+"/"+c.Key] = c.Granted
	}
	assert.Equal(t, map[string]uint64{"path/": 1, "query/": 1, "tenants/acme": 1}, granted)
}
