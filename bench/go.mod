module github.com/watertight-go/watertight/bench

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/go-chi/chi/v5 v5.5.0
	github.com/watertight-go/watertight v0.0.0
	golang.org/x/sync v0.25.0
)

require github.com/bits-and-blooms/bitset v1.24.4 // indirect

replace github.com/watertight-go/watertight => ../
