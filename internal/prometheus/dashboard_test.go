package prometheus_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const dashboardFile = root + "/deploy/grafana/watertight.json"

// A board is the parts of the dashboard that ask Prometheus something.
type board struct {
	SchemaVersion int
	Panels        []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ RefID, Expr string }
	}
	Templating  struct{ List []variable }
	Annotations struct{ List []struct{ Name, Expr string } }
}

type variable struct {
	Name, Type string
	Query      any // an object, or for the data source a string
}

func loadBoard(t *testing.T) board {
	t.Helper()
	var b board
	require.NoError(t, json.Unmarshal([]byte(read(t, dashboardFile)), &b))
	return b
}

// A query is what a panel, an annotation or a variable asks.
type query struct{ from, expr string }

// queries returns all of them as Prometheus gets them if all is selected.
func (b board) queries(t *testing.T) []query {
	t.Helper()
	var all []query
	add := func(from, expr string) {
		require.NotEmpty(t, expr, from)
		all = append(all, query{from, substitute(expr)})
	}
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			add("panel "+p.Title+" "+target.RefID, target.Expr)
		}
	}
	for _, a := range b.Annotations.List {
		add("annotation "+a.Name, a.Expr)
	}
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		_, series := v.asks(t)
		add("variable "+v.Name, series)
	}
	return all
}

// asks returns which label's values the variable asks for, of which series.
func (v variable) asks(t *testing.T) (label, series string) {
	t.Helper()
	q, _ := v.Query.(map[string]any)
	text, _ := q["query"].(string)
	m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(text)
	require.NotNil(t, m, "variable %s: %v", v.Name, v.Query)
	return m[2], m[1]
}

// substitute does to a query what Grafana does.
func substitute(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5s", "$instance", ".*", "$policy", ".*", "$side", ".*", "$key", ".*").Replace(expr)
}

func TestDashboardIsOfGrafanasShape(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	//lint:ignore SA1019 the file has the classic shape, which every Grafana imports; dashboardv2 describes another
	var d dashboard.Dashboard
	var problems cog.BuildErrors
	if err := d.UnmarshalJSONStrict([]byte(read(t, dashboardFile))); !errors.As(err, &problems) {
		require.NoError(t, err)
	}
	require.Empty(t, problems) // an empty list comes as an error too

	b := loadBoard(t)
	assert.Equal(t, 42, b.SchemaVersion)
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range b.Panels {
		assert.False(t, ids[p.ID], "panel %s: its id is taken", p.Title)
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		assert.NotEmpty(t, p.Targets, "panel %s asks nothing", p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			assert.Less(t, x, 24, "panel %s: the grid ends there", p.Title)
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				assert.Empty(t, taken[[2]int{x, y}], "panel %s is on top of another", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	var names []string
	for _, v := range b.Templating.List {
		names = append(names, v.Name)
	}
	assert.Equal(t, []string{"datasource", "instance", "policy", "side", "key"}, names)
}

func TestQueriesParse(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	for _, q := range loadBoard(t).queries(t) {
		_, err := p.ParseExpr(q.expr)
		assert.NoError(t, err, "%s: %s", q.from, q.expr)
		assert.NotContains(t, q.expr, "$", q.from)
	}
	for _, r := range rules(t) {
		_, err := p.ParseExpr(r.Expr)
		assert.NoError(t, err, "%s%s", r.Record, r.Alert)
	}
}
