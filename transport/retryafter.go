package transport

import (
	"net/http"
	"strconv"
	"time"
)

// maxRetryAfter is the most that retryAfter returns. No policy heeds as much.
const maxRetryAfter = 10 * 365 * 24 * time.Hour

// retryAfter returns for how long a response asks not to be asked again, by the
// Retry-After of a 429 or a 503 (RFC 9110, section 10.2.3); 0 if it does not.
func retryAfter(resp *http.Response) time.Duration {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	value := resp.Header.Get("Retry-After")
	if value == "" {
		return 0
	}
	if seconds, ok := wholeNumber(value); ok {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	// Counted from the moment that the upstream wrote it, by its own clock if it
	// says what that shows: the clocks of two hosts need not agree.
	from, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		from = time.Now()
	}
	return min(max(0, at.Sub(from)), maxRetryAfter)
}

// wholeNumber reads digits and nothing else. What is too large for its type is the
// largest that is not.
func wholeNumber(s string) (uint64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, _ := strconv.ParseUint(s, 10, 64) // of digits, the only error is that of the range
	return n, true
}
