package transport

var RetryAfter = retryAfter
