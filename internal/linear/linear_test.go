package linear_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/internal/linear"
)

// An access writes a register, or reads what is in it.
type access struct {
	begun, over int64
	write       bool
	value       int
}

func (a access) Begun() int64 { return a.begun }
func (a access) Over() int64  { return a.over }

func (a access) Next(register int) (int, bool) {
	if a.write {
		return a.value, true
	}
	return register, a.value == register
}

func TestExplains(t *testing.T) {
	write := func(begun, over int64, value int) access { return access{begun, over, true, value} }
	read := func(begun, over int64, value int) access { return access{begun, over, false, value} }
	for name, tt := range map[string]struct {
		history []access
		want    bool
	}{
		"nothing":                       {nil, true},
		"read after the write":          {[]access{write(1, 2, 7), read(3, 4, 7)}, true},
		"not seen":                      {[]access{write(1, 2, 7), read(3, 4, 0)}, false},
		"seen beside it":                {[]access{write(1, 4, 7), read(2, 3, 7)}, true},
		"not seen beside it":            {[]access{write(1, 4, 7), read(2, 3, 0)}, true},
		"seen before it":                {[]access{read(1, 2, 7), write(3, 4, 7)}, false},
		"seen, then not":                {[]access{write(1, 6, 7), read(2, 3, 7), read(4, 5, 0)}, false},
		"not seen, then seen":           {[]access{write(1, 6, 7), read(2, 3, 0), read(4, 5, 7)}, true},
		"two writes in either order":    {[]access{write(1, 3, 7), write(2, 4, 8), read(5, 6, 7)}, true},
		"and in both":                   {[]access{write(1, 3, 7), write(2, 4, 8), read(5, 6, 7), read(7, 8, 8)}, false},
		"the later write is not undone": {[]access{write(1, 2, 7), write(3, 4, 8), read(5, 6, 7)}, false},
		"never written":                 {[]access{write(1, 2, 7), read(3, 4, 9)}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, linear.Explains(0, tt.history)) })
	}
}

func TestExplainsAsManyAsItCan(t *testing.T) {
	var history []access
	for i := range int64(linear.MaxSteps) {
		history = append(history, access{begun: 2 * i, over: 2*i + 1, write: i%2 == 0, value: int(i / 2)})
	}
	assert.True(t, linear.Explains(0, history))
	history[linear.MaxSteps-2].value++
	assert.False(t, linear.Explains(0, history))
	assert.Panics(t, func() { linear.Explains(0, append(history, access{})) })
}
