package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// However often a value is sent, entries are asked about as often as there are any: what
// a request costs does not grow with the product of the two.
func TestRepeatedHeaderValuesAreBounded(t *testing.T) {
	var h headerWay
	for n := range int32(100) {
		h.all = append(h.all, n)
		numbers := h.values.make([]string{"a", "b", "c"}[n%3])
		*numbers = append(*numbers, n)
	}
	for _, values := range [][]string{{"a"}, {"a", "x", "c"}, {"a", "b", "c"}, {"a", "a"}, {"a", "a", "a", "a", "b"}, make([]string, 1000)} {
		for i := range values {
			if values[i] == "" {
				values[i] = "b"
			}
		}
		asked, times := map[int32]bool{}, 0
		h.each(values, func(numbers []int32) {
			for _, n := range numbers {
				asked[n] = true
			}
			times += len(numbers)
		})
		for n, v := range map[int32]string{0: "a", 1: "b", 2: "c"} {
			for _, sent := range values {
				assert.True(t, sent != v || asked[n], "%s of %q", v, values[:min(5, len(values))])
			}
		}
		assert.LessOrEqual(t, times, 2*len(h.all), "%q", values[:min(5, len(values))])
	}
}
