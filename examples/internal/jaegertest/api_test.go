package jaegertest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// services returns the names of the services that sent spans.
func (j *jaeger) services() ([]string, error) { return get[[]string](j, "/api/services", nil) }

// operations returns the names of a service's spans.
func (j *jaeger) operations(t *testing.T, service string) []string {
	t.Helper()
	names, err := get[[]string](j, "/api/services/"+service+"/operations", nil)
	require.NoError(t, err)
	return names
}

// trace returns the trace with that ID, or an error if Jaeger has none.
func (j *jaeger) trace(id string) (*trace, error) {
	found, err := get[[]traceJSON](j, "/api/traces/"+id, nil)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("trace %s: %d traces", id, len(found))
	}
	return found[0].trace(), nil
}

// A search asks for traces with a span that is all of this.
type search struct {
	service   string
	operation string            // "": any
	tags      map[string]string // Jaeger compares numbers as text, too
	limit     int
}

// find returns traces, the latest first.
func (j *jaeger) find(s search) ([]*trace, error) {
	q := url.Values{"service": {s.service}, "limit": {strconv.Itoa(s.limit)}}
	if s.operation != "" {
		q.Set("operation", s.operation)
	}
	if s.tags != nil {
		tags, err := json.Marshal(s.tags)
		if err != nil {
			return nil, err
		}
		q.Set("tags", string(tags))
	}
	found, err := get[[]traceJSON](j, "/api/traces", q)
	if err != nil {
		return nil, err
	}
	traces := make([]*trace, len(found))
	for i, f := range found {
		traces[i] = f.trace()
	}
	return traces, nil
}

// get asks the query API.
func get[T any](j *jaeger, path string, q url.Values) (T, error) {
	var answer struct {
		Data   T
		Errors []struct{ Msg string }
	}
	resp, err := client.Get(j.query + path + "?" + q.Encode())
	if err != nil {
		return answer.Data, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return answer.Data, fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if resp.StatusCode != http.StatusOK || len(answer.Errors) > 0 {
		return answer.Data, fmt.Errorf("%s: %s: %v", path, resp.Status, answer.Errors)
	}
	return answer.Data, nil
}

// A traceJSON is a trace as the API has it.
type traceJSON struct {
	TraceID string
	Spans   []struct {
		SpanID        string
		OperationName string
		References    []struct{ RefType, TraceID, SpanID string }
		StartTime     int64 // since 1970, in microseconds
		Duration      int64 // in microseconds
		Tags          []struct {
			Key, Type string
			Value     any
		}
		ProcessID string
	}
	Processes map[string]struct{ ServiceName string }
}

func (j traceJSON) trace() *trace {
	tr := &trace{id: j.TraceID}
	for _, s := range j.Spans {
		sp := &span{
			id:       s.SpanID,
			name:     s.OperationName,
			service:  j.Processes[s.ProcessID].ServiceName,
			start:    time.UnixMicro(s.StartTime),
			duration: time.Duration(s.Duration) * time.Microsecond,
			tags:     make(map[string]any, len(s.Tags)),
			types:    make(map[string]string, len(s.Tags)),
		}
		for _, ref := range s.References {
			switch {
			case ref.RefType == "CHILD_OF" && ref.TraceID == j.TraceID:
				sp.parentID = ref.SpanID
			case ref.RefType == "FOLLOWS_FROM":
				sp.links = append(sp.links, spanRef{ref.TraceID, ref.SpanID})
			}
		}
		for _, tag := range s.Tags {
			sp.tags[tag.Key], sp.types[tag.Key] = tag.Value, tag.Type
		}
		tr.spans = append(tr.spans, sp)
	}
	return tr
}

// A linkAttribute is one of a link, which only the newer API has.
type linkAttribute struct {
	Key   string
	Value struct {
		StringValue *string
		DoubleValue *float64
	}
}

// linkAttributes returns the attributes of the links of a span, by link.
func (j *jaeger) linkAttributes(t *testing.T, traceID, spanID string) [][]linkAttribute {
	t.Helper()
	var answer struct {
		Result struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						SpanID string
						Links  []struct{ Attributes []linkAttribute }
					}
				}
			}
		}
	}
	resp, err := client.Get(j.query + "/api/v3/traces/" + traceID)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	var all [][]linkAttribute
	for _, r := range answer.Result.ResourceSpans {
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				if s.SpanID == spanID {
					for _, l := range s.Links {
						all = append(all, l.Attributes)
					}
				}
			}
		}
	}
	return all
}
