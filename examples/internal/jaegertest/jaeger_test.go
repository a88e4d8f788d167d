// Package jaegertest_test sends the spans of the example programs to a real
// Jaeger and reads them back through its query API. It has no other code.
package jaegertest_test

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/internal/program"
)

const root = "../../.."

// A jaeger is a running Jaeger.
type jaeger struct {
	query string // URL of the query API
	otlp  string // URL for spans
	probe string // the service of the span by which it was found to be ready
}

// startJaeger starts a Jaeger on free ports.
func startJaeger(t *testing.T) *jaeger {
	t.Helper()
	bin := jaegerBinary(t)
	// Somebody else may take a port between the moment when it is found free
	// and the one when Jaeger wants it. That is a matter of chance, so that some
	// attempts are enough.
	const attempts = 5
	for range attempts {
		if j := tryJaeger(t, bin, freePorts(t, 2)); j != nil {
			return j
		}
	}
	require.FailNow(t, "Jaeger does not start")
	return nil
}

// jaegerBinary returns where Jaeger is. Without one the test is skipped, or
// fails where it has to run.
func jaegerBinary(t *testing.T) string {
	t.Helper()
	name := os.Getenv("WATERTIGHT_JAEGER")
	if name == "" {
		name = filepath.Join(root, ".bin", "jaeger")
	}
	bin, err := exec.LookPath(name)
	if err == nil {
		bin, err = filepath.Abs(bin)
	}
	if err == nil {
		return bin
	}
	missing := fmt.Sprintf("there is no Jaeger (%v): run tools/jaeger/build at the root of the repository, once, or name one by WATERTIGHT_JAEGER", err)
	for _, v := range []string{"CI", "WATERTIGHT_REQUIRE_JAEGER"} {
		if required, _ := strconv.ParseBool(os.Getenv(v)); required {
			require.FailNow(t, missing)
		}
	}
	t.Skip(missing)
	return ""
}

// freePorts returns ports of the loopback interface on which nobody listens.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close() // all at the end, or the same one might come twice
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// tryJaeger starts a Jaeger on the given ports and waits until it is ready. It
// returns nil if Jaeger could not start.
func tryJaeger(t *testing.T, bin string, ports []int) *jaeger {
	t.Helper()
	p := program.Start(t, []string{
		"JAEGER_QUERY_HTTP_PORT=" + strconv.Itoa(ports[0]),
		"JAEGER_OTLP_HTTP_PORT=" + strconv.Itoa(ports[1]),
		"JAEGER_QUERY_GRPC_PORT=0",
		"JAEGER_OTLP_GRPC_PORT=0",
	}, bin, "--config", "file:"+filepath.Join(root, "tools", "jaeger", "jaeger.yaml"))
	j := &jaeger{
		query: fmt.Sprintf("http://127.0.0.1:%d", ports[0]),
		otlp:  fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
		probe: "probe-" + strings.ToLower(rand.Text()),
	}
	deadline := time.After(patience)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !j.ready() {
		select {
		case <-tick.C:
		case <-p.Exited():
			t.Logf("Jaeger could not start on ports %v: %v\n%s", ports, p.Status(), p.Output())
			return nil
		case <-deadline:
			require.FailNow(t, "Jaeger runs, but is not ready")
		}
	}
	return j
}

// ready reports whether a span that was sent to the one port came out at the
// other. That also tells this Jaeger from one that took a port before it.
func (j *jaeger) ready() bool {
	services, err := j.services()
	if err != nil {
		return false
	}
	if slices.Contains(services, j.probe) {
		return true
	}
	span := fmt.Sprintf(`{"resourceSpans": [{
		"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": %q}}]},
		"scopeSpans": [{"spans": [{
			"traceId": "0123456789abcdef0123456789abcdef", "spanId": "0123456789abcdef", "name": "probe",
			"startTimeUnixNano": "1", "endTimeUnixNano": "2"}]}]}]}`, j.probe)
	resp, err := client.Post(j.otlp+"/v1/traces", "application/json", strings.NewReader(span))
	if err == nil {
		resp.Body.Close()
	}
	return false
}

// client is for talking to Jaeger and to the server. It keeps no connections,
// so that no test has to close them.
var client = &http.Client{
	Transport: &http.Transport{DisableKeepAlives: true},
	Timeout:   patience,
}
