package prometheus_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelattribute "go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// The table of the documentation is what OpenTelemetry's SDK and its exporter make of the
// instruments.
func TestTableOfMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	s := metricsOfEverything(t, sdkmetric.WithReader(reader))
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &got))
	types := map[string]string{} // as Prometheus sees them
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(s.text(), -1) {
		types[m[1]] = m[2]
	}
	delete(types, "target_info")

	var rows []string
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			kind, attributes := shape(t, m.Data)
			name := prometheusName(m, kind)
			assert.Contains(t, types, name, m.Name)
			delete(types, name)
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s | `%s` |\n", m.Name, kind, m.Unit, attributes, name))
		}
	}
	assert.Empty(t, types, "metrics that no instrument makes")
	slices.Sort(rows)
	assert.True(t, strings.Contains(read(t, root+"/docs/observe.md"), "|---|---|---|---|---|\n"+strings.Join(rows, "")+"\n"), "docs/observe.md: the table of metrics should be:\n%s", strings.Join(rows, ""))
}

// shape returns the kind of a metric, and the attributes of its points together.
func shape(t *testing.T, data metricdata.Aggregation) (kind, attributes string) {
	t.Helper()
	var sets []otelattribute.Set
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		kind = "up-down counter"
		if d.IsMonotonic {
			kind = "counter"
		}
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[int64]:
		kind = "gauge"
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[float64]:
		kind = "gauge"
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		kind = "histogram"
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	default:
		require.Fail(t, "a metric of another kind", "%T", data)
	}
	var names []string
	for _, set := range sets {
		for _, kv := range set.ToSlice() {
			if name := strings.TrimPrefix(string(kv.Key), "watertight."); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return kind, strings.Join(names, ", ")
}

// prometheusName is what the exporter calls a metric by default.
func prometheusName(m metricdata.Metrics, kind string) string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	switch m.Unit {
	case "s":
		name += "_seconds"
	case "1":
		name += "_ratio"
	}
	if kind == "counter" {
		name += "_total"
	}
	return name
}
