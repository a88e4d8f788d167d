package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/watertight-go/watertight"
)

// A sample is what a Guard looked like at one moment, encoded member by member, so that
// two of them can be compared without knowing what the members mean: fields that a
// snapshot gets one day are told of as those of today are.
type sample struct {
	seq    uint64
	taken  time.Time // also on the monotonic clock
	closed bool

	head        map[string]json.RawMessage // all members but the two below
	rows        []row
	byID        map[string]int // places in rows
	transitions []json.RawMessage
}

// A row is a compartment. Its encoding is the same slice as that of the sample before
// as long as it has not changed.
type row struct {
	id   string
	text json.RawMessage
}

// identified is a compartment as it is sent: with the name under which a delta speaks
// of it.
type identified struct {
	ID string `json:"id"`
	watertight.CompartmentSnapshot
}

// A source says, beside the time, what the figures are of: another instance has begun
// to count anew.
type source struct {
	instance string
	interval time.Duration
}

// encode makes a sample of a snapshot. It takes what has not changed from before, which
// may be nil.
func encode(s watertight.Snapshot, from source, at time.Time, seq uint64, before *sample) (*sample, error) {
	out := &sample{
		seq:    seq,
		taken:  at,
		closed: s.Closed,
		rows:   make([]row, 0, len(s.Compartments)),
		byID:   make(map[string]int, len(s.Compartments)),

		transitions: make([]json.RawMessage, 0, len(s.Transitions)),
	}
	for _, c := range s.Compartments {
		id := out.freeID(c)
		text, err := json.Marshal(identified{id, c})
		if err != nil {
			return nil, fmt.Errorf("dashboard: compartment %s: %w", id, err)
		}
		if before != nil {
			if i, ok := before.byID[id]; ok && bytes.Equal(before.rows[i].text, text) {
				text = before.rows[i].text
			}
		}
		out.byID[id] = len(out.rows)
		out.rows = append(out.rows, row{id, text})
	}
	for _, t := range s.Transitions {
		text, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("dashboard: a transition of %s: %w", t.Policy, err)
		}
		out.transitions = append(out.transitions, text)
	}
	s.Compartments, s.Transitions = nil, nil
	head, err := json.Marshal(struct {
		watertight.Snapshot
		Time       time.Time `json:"time"`
		Instance   string    `json:"instance"`
		IntervalMs int64     `json:"intervalMs"`
		Seq        uint64    `json:"seq"`
	}{s, at, from.instance, from.interval.Milliseconds(), seq})
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if err := json.Unmarshal(head, &out.head); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	delete(out.head, "compartments")
	delete(out.head, "transitions")
	return out, nil
}

// freeID returns a name for c that no row has yet. It is the same each time, so that a
// link to a compartment stays good. Two compartments have the same policy, side and key
// while one of a policy that a reload took away is still in use beside the new one.
func (s *sample) freeID(c watertight.CompartmentSnapshot) string {
	id := c.Side + "/" + url.PathEscape(c.Policy) + "/" + url.PathEscape(c.Per) + "/" + url.PathEscape(c.Key)
	if _, taken := s.byID[id]; !taken {
		return id
	}
	for n := 2; ; n++ {
		next := id + "/" + strconv.Itoa(n)
		if _, taken := s.byID[next]; !taken {
			return next
		}
	}
}

// document returns the whole of s.
func (s *sample) document() ([]byte, error) {
	all := s.members(len(s.head) + 2)
	rows := make([]json.RawMessage, len(s.rows))
	for i, r := range s.rows {
		rows[i] = r.text
	}
	all["compartments"] = rows
	all["transitions"] = s.transitions
	return json.Marshal(all)
}

func (s *sample) members(size int) map[string]any {
	all := make(map[string]any, size)
	for name, text := range s.head {
		all[name] = text
	}
	return all
}

// delta returns what has to be done to base to get s.
//
//   - compartments: those that are new or have changed, each whole;
//   - order: the ids of all, in their order, if others have come or gone;
//   - transitions: those to append, after forgotten of the oldest have been taken off;
//   - any other member takes the place of the one in base, and null takes it away.
func (s *sample) delta(base *sample) ([]byte, error) {
	d := map[string]any{"base": base.seq}
	for name, text := range s.head {
		if !bytes.Equal(base.head[name], text) {
			d[name] = text
		}
	}
	for name := range base.head {
		if _, ok := s.head[name]; !ok {
			d[name] = nil
		}
	}
	d["version"] = s.head["version"]

	var changed []json.RawMessage
	for _, r := range s.rows {
		if i, ok := base.byID[r.id]; !ok || !bytes.Equal(base.rows[i].text, r.text) {
			changed = append(changed, r.text)
		}
	}
	if changed != nil {
		d["compartments"] = changed
	}
	if !slices.EqualFunc(base.rows, s.rows, func(a, b row) bool { return a.id == b.id }) {
		order := make([]string, len(s.rows))
		for i, r := range s.rows {
			order[i] = r.id
		}
		d["order"] = order
	}
	forgotten := forgotten(base.transitions, s.transitions)
	if forgotten > 0 {
		d["forgotten"] = forgotten
	}
	if appended := s.transitions[len(base.transitions)-forgotten:]; len(appended) > 0 {
		d["transitions"] = appended
	}
	return json.Marshal(d)
}

// forgotten returns how many of before have to go so that the rest is how after begins.
func forgotten(before, after []json.RawMessage) int {
	for k := range before {
		rest := before[k:]
		if len(rest) <= len(after) && slices.EqualFunc(rest, after[:len(rest)], func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			return k
		}
	}
	return len(before)
}
