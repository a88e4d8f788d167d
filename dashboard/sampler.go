package dashboard

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/watertight-go/watertight"
)

// A sampler looks at a Guard for all who watch. It has no goroutine: whoever's turn it
// is first takes the sample, and the others find it. So there are never more than one in
// an interval, nobody waits for another to read, and a slow one goes on with the newest
// when it is back.
type sampler struct {
	guard  *watertight.Guard
	source source
	max    int

	mu       sync.Mutex
	watching int
	seq      uint64
	newest   *sample // nil: nobody watches
	// The step from the sample before to newest, which nearly all need. nil: nobody has yet.
	step []byte
	from *sample
}

var errTooMany = errors.New("as many watch already as may: close a page that nobody looks at, or allow more with WithMaxWatchers")

func newSampler(wt *watertight.Guard, o options) *sampler {
	return &sampler{
		guard:  wt,
		source: source{instance: rand.Text(), interval: o.interval},
		max:    o.watchers,
	}
}

// join lets another one watch, if there is room; leave must follow.
func (s *sampler) join() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watching >= s.max {
		return errTooMany
	}
	s.watching++
	return nil
}

func (s *sampler) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching--
	if s.watching == 0 {
		s.newest, s.from, s.step = nil, nil, nil
	}
}

// next returns a sample that is not older than an interval.
func (s *sampler) next() (*sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest != nil && time.Since(s.newest.taken) < s.source.interval {
		return s.newest, nil
	}
	now, err := s.look(s.seq+1, s.newest)
	if err != nil {
		return nil, err
	}
	s.seq++
	s.from, s.newest, s.step = s.newest, now, nil
	return now, nil
}

// look takes a sample now.
func (s *sampler) look(seq uint64, before *sample) (*sample, error) {
	at := time.Now()
	return encode(s.guard.Snapshot(), s.source, at, seq, before)
}

// between returns the delta from base to to.
func (s *sampler) between(base, to *sample) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if base != s.from || to != s.newest {
		return to.delta(base) // of one that was away
	}
	if s.step == nil {
		step, err := to.delta(base)
		if err != nil {
			return nil, err
		}
		s.step = step
	}
	return s.step, nil
}
