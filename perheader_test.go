package watertight_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

const tenants = `
version: 1
defaults: {maxCompartments: 3}
policies:
  - name: tenants
    per: header:x-tenant
    bulkhead: {maxConcurrent: 1}
`

func by(r *policy.Request, tenant ...string) *policy.Request {
	r.Header = map[string][]string{"X-Tenant": tenant}
	return r
}

func TestEachTenantIsACompartment(t *testing.T) {
	for _, req := range []func() *policy.Request{
		func() *policy.Request { return on("/") },
		func() *policy.Request { return to("a") },
	} {
		g := guard(t, tenants)
		admit(t, g, by(req(), "noisy"))
		refused(t, g, by(req(), "noisy", "quiet"), bulkhead.ErrFull) // the first value is the tenant
		admit(t, g, by(req(), "quiet"))
		admit(t, g, req()) // nobody's
		refused(t, g, by(req(), ""), bulkhead.ErrFull)
		refused(t, g, by(req()), bulkhead.ErrFull)
		assert.EqualValues(t, 1, compartment(t, g, "tenants", "noisy").Rejected["full"])
		assert.EqualValues(t, 2, compartment(t, g, "tenants", "(none)").Rejected["full"])

		// No header can be the key of another kind.
		admit(t, g, by(req(), "(none)")) // all three are taken
		refused(t, g, by(req(), "(overflow)"), bulkhead.ErrFull)
		assert.EqualValues(t, 1, compartment(t, g, "tenants", "(overflow)").Granted)
	}
}

// Long values that begin alike, as tokens do, are tenants of their own.
func TestLongTenantsAreToldApart(t *testing.T) {
	g := guard(t, tenants)
	token := strings.Repeat("x", 100_000)
	admit(t, g, by(on("/"), token+"1"))
	admit(t, g, by(on("/"), token+"2"))
	refused(t, g, by(on("/"), token+"1"), bulkhead.ErrFull)
	for _, c := range g.Snapshot().Compartments {
		assert.LessOrEqual(t, len(c.Key), 64)
	}
}

// The value may be a secret.
func TestTenantsStayOutOfErrorsAndLogs(t *testing.T) {
	const secret = "s3cret"
	var log bytes.Buffer
	var told []string
	g := guard(t, tenants,
		watertight.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		watertight.WithHooks(watertight.Hooks{}))
	c := admit(t, g, by(to("a"), secret))
	rejected := refused(t, g, by(to("a"), secret), bulkhead.ErrFull)
	assert.Empty(t, rejected.Key)
	told = append(told, rejected.Error(), fmt.Sprintf("%+v", rejected))
	c.Leak()
	told = append(told, log.String())
	require.NotEmpty(t, log.String())
	for _, text := range told {
		assert.NotContains(t, text, secret)
	}
	assert.Equal(t, "watertight: policy tenants refused the call, full: bulkhead: full; retry after 1s", rejected.Error())
	assert.Equal(t, secret, compartment(t, g, "tenants", secret).Key, "but the snapshot has it")
}

// Another header divides the calls in another way.
func TestReloadChangesTheHeader(t *testing.T) {
	g := guard(t, tenants)
	admit(t, g, by(on("/"), "a"))
	other, err := policy.Parse("f", []byte(strings.ReplaceAll(tenants, "x-tenant", "x-plan")))
	require.NoError(t, err)
	g.Reload(other)
	admit(t, g, by(on("/"), "a")) // now nobody's
	plan := on("/")
	plan.Header = map[string][]string{"X-Plan": {"a"}}
	admit(t, g, plan) // the tenant of that name is inside, the plan is not
	g.Reload(other)
	refused(t, g, plan, bulkhead.ErrFull)
	refused(t, g, by(on("/"), "a"), bulkhead.ErrFull)
}
