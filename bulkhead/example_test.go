package bulkhead_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watertight-go/watertight/bulkhead"
)

// At most two exports at once, and nobody waits for a third.
func ExampleNew() {
	exports := bulkhead.New(bulkhead.Config{Limit: 2})

	export := func(ctx context.Context) (bulkhead.Permit, error) {
		permit, err := exports.Acquire(ctx)
		if err != nil {
			return permit, fmt.Errorf("export: %w", err)
		}
		return permit, nil // the caller releases it when the export is done
	}

	ctx := context.Background()
	first, _ := export(ctx)
	second, _ := export(ctx)
	_, err := export(ctx)
	fmt.Println(err)

	first.Release()
	second.Release()
	_, err = export(ctx)
	fmt.Println(err)
	// Output:
	// export: bulkhead: full
	// <nil>
}

func ExampleBulkhead_Acquire() {
	b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 10, MaxWait: 10 * time.Millisecond})
	work := func(ctx context.Context) string {
		permit, err := b.Acquire(ctx)
		switch {
		case err == nil:
			defer permit.Release()
			return "done"
		case errors.Is(err, bulkhead.ErrWaitTimeout):
			return "busy for too long"
		case errors.Is(err, bulkhead.ErrFull), errors.Is(err, bulkhead.ErrClosed):
			return "turned away"
		default:
			return "the caller has left"
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	fmt.Println(work(ctx))

	held, _ := b.TryAcquire()
	fmt.Println(work(ctx))
	held.Release()

	cancel()
	fmt.Println(work(ctx))

	b.Close()
	fmt.Println(work(context.Background()))
	// Output:
	// done
	// busy for too long
	// the caller has left
	// turned away
}

// AcquireInfo says how a call fared, for logs and spans.
func ExampleBulkhead_AcquireInfo() {
	b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 10, MaxWait: time.Millisecond})
	held, _ := b.TryAcquire()
	defer held.Release()

	var info bulkhead.Info
	_, err := b.AcquireInfo(context.Background(), &info)
	fmt.Println(err)
	fmt.Println("position on arrival:", info.Position)
	fmt.Println("waited at least 1ms:", info.Waited >= time.Millisecond)
	fmt.Printf("%d of %d in flight\n", info.InFlight, info.Limit)
	// Output:
	// bulkhead: waited too long for a permit
	// position on arrival: 1
	// waited at least 1ms: true
	// 1 of 1 in flight
}

// A limit is changed while calls are inside. None of them is cut off.
func ExampleBulkhead_Resize() {
	b := bulkhead.New(bulkhead.Config{Limit: 2})
	first, _ := b.TryAcquire()
	second, _ := b.TryAcquire()

	b.Resize(1)
	s := b.Snapshot()
	fmt.Printf("%d in flight, limit %d\n", s.InFlight, s.Limit)

	first.Release()
	_, err := b.TryAcquire()
	fmt.Println(err)

	second.Release()
	_, err = b.TryAcquire()
	fmt.Println(err)
	// Output:
	// 2 in flight, limit 1
	// bulkhead: full
	// <nil>
}

// A shutdown refuses new calls and waits for those inside.
func ExampleBulkhead_Drain() {
	b := bulkhead.New(bulkhead.Config{Limit: 10})
	permit, _ := b.TryAcquire()
	go func() {
		defer permit.Release()
		// the work
	}()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(b.Drain(ctx))

	_, err := b.Acquire(ctx)
	fmt.Println(err)
	// Output:
	// <nil>
	// bulkhead: closed
}
