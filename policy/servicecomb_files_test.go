package policy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// The files in testdata/servicecomb/files have the shapes that such files have where
// they are published. Beside each stands what it is taken for.
func TestServiceCombFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/servicecomb/files/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".want")
			require.NoError(t, err)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), taken(data))
			assert.Equal(t, string(want), taken([]byte("\ufeff"+strings.ReplaceAll(string(data), "\n", "\r\n"))), "as Windows writes it")
		})
	}
}

// taken says what a file is taken for, strictly, and what else leniently.
func taken(data []byte) string {
	strict := outcomeOf(policy.Parse("f", data))
	lenient := outcomeOf(policy.Parse("f", data, policy.Lenient()))
	if lenient == strict {
		return strict
	}
	return strict + "leniently:\n" + lenient
}

func outcomeOf(set *policy.Set, err error) string {
	var b strings.Builder
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(&b, "error %s\n", strings.TrimPrefix(line, "f:"))
		}
		return b.String()
	}
	for _, w := range set.Warnings() {
		fmt.Fprintf(&b, "warning %s\n", strings.TrimPrefix(w.Error(), "f:"))
	}
	for _, r := range set.Rules() {
		fmt.Fprintf(&b, "%v %s per %v", r.Side, r.Name, r.PerOn(r.Side))
		if k := r.Bulkhead; k != nil {
			fmt.Fprintf(&b, ", bulkhead %d, queue %d, wait %v", k.MaxConcurrent, k.MaxQueue, k.MaxWait)
		}
		if k := r.Breaker; k != nil {
			fmt.Fprintf(&b, ", breaker failures %v%% of %v, slow %v%% over %v, window {%d calls, %v}, at least %d, open %v, probes %d for %v, force %v",
				k.FailureRate, k.FailureStatus, k.SlowCallRate, k.SlowCall, k.Window.Calls, k.Window.Time, k.MinCalls, k.OpenFor, k.HalfOpen.Calls, k.HalfOpen.ProbeTimeout, k.Force)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
