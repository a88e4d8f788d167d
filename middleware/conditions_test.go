package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/middleware"
)

// What policies can ask for is what the handler sees of the request.
func TestPoliciesSeePathQueryAndHeader(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: path, match: [{path: {exact: "/a/b c"}}], per: policy, bulkhead: {maxConcurrent: 1}}
  - {name: query, match: [{query: {watch: {exact: "yes, please"}}}], per: policy, bulkhead: {maxConcurrent: 1}}
  - {name: tenants, per: header:X-Tenant, bulkhead: {maxConcurrent: 1}}
`)
	h := middleware.New(g)(ok)
	for _, target := range []string{"/a%2Fb%20c", "/other?watch=yes%2C+please", "/other?watch=no"} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set("X-Tenant", "acme")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	assert.EqualValues(t, 1, compartment(t, g, "path", "").Granted)
	assert.EqualValues(t, 1, compartment(t, g, "query", "").Granted)
	assert.EqualValues(t, 1, compartment(t, g, "tenants", "acme").Granted)
}

// The value of a header that divides a policy may be a secret: no answer has it.
func TestAnswersDoNotTellTenants(t *testing.T) {
	g := guard(t, "version: 1\npolicies: [{name: tenants, per: header:X-Key, bulkhead: {maxConcurrent: 1}}]\n")
	inside := newGate()
	h := middleware.New(g)(inside)
	request := func() *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Key", "s3cret")
		return r
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), request())
	}()
	<-inside.entered
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, request())
	assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
	assert.NotContains(t, rec.Body.String(), "s3cret")
	for name, values := range rec.Header() {
		assert.NotContains(t, values, "s3cret", name)
	}
	close(inside.open)
	<-done
}
