package policy_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/policy"
)

func TestAppendKey(t *testing.T) {
	server := policy.Request{Side: policy.Server, Host: "Here:80", Route: "/a/{id}", RouteKnown: true, Header: http.Header{"X-Tenant": {"t", "u"}}}
	unrouted := server
	unrouted.Route, unrouted.RouteKnown = "", false
	client := policy.Request{Side: policy.Client, Scheme: "https", Host: "There"}
	named := client
	named.Key = "db"
	for _, tt := range []struct {
		rule policy.Rule
		req  *policy.Request
		want string
	}{
		{policy.Rule{}, &server, "/a/{id}"},
		{policy.Rule{}, &unrouted, "/pattern"},
		{policy.Rule{}, &client, "https://there:443"},
		{policy.Rule{}, &named, "db"},
		{policy.Rule{Per: policy.PerPolicy}, &server, ""},
		{policy.Rule{Per: policy.PerRoute}, &client, "https://there:443"},
		{policy.Rule{Per: policy.PerHost}, &server, "here"},
		{policy.Rule{Per: policy.PerHeader, Header: "X-Tenant"}, &server, "t"},
		{policy.Rule{Per: policy.PerHeader, Header: "X-Tenant"}, &client, "(none)"},
		{policy.Rule{Exempt: true}, &server, ""},
	} {
		assert.Equal(t, "k"+tt.want, string(tt.rule.AppendKey([]byte("k"), tt.req, "/pattern")), "%v %v", tt.rule.Per, tt.req.Side)
	}
}
