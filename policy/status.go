package policy

import "strconv"

// The statuses that a three-digit status line can carry.
const (
	minStatus = 100
	maxStatus = 999
)

// A StatusRange is a range of HTTP statuses, 100 to 999, both ends included.
type StatusRange struct {
	// From is the first status of the range.
	From int
	// To is the last status of the range. 0: From alone.
	To int
}

// String returns the range as a policy file writes it: "500-599", or "503".
func (r StatusRange) String() string {
	if r.To == 0 || r.To == r.From {
		return strconv.Itoa(r.From)
	}
	return strconv.Itoa(r.From) + "-" + strconv.Itoa(r.To)
}

// A statusSet has one bit for each status from 0 to 1023.
type statusSet [16]uint64

func (s *statusSet) add(r StatusRange) {
	for status := r.From; status <= r.To; status++ {
		s[status/64] |= 1 << (status % 64)
	}
}

func (s *statusSet) has(status int) bool {
	// Converted to unsigned, a negative status is as far out as a big one.
	return uint(status) < uint(len(s)*64) && s[status/64]&(1<<(status%64)) != 0
}
