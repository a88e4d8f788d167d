package policy

// A Set is a list of policies, checked and compiled. It does not change, so it
// may be used by many goroutines at once. The zero Set has no policies.
type Set struct {
	rules    []*Rule
	byName   [2]map[string]*Rule // by side; in a ServiceComb file a name may be on both, of two policies
	server   index               // of those rules that work on a server
	client   index               // likewise on a client
	written  []map[string]at     // by index of the rule and by key; the name is under ""
	defaults Defaults
	warnings []*Error
	routes   bool
	version  string
	hosted   bool // of a ServiceComb file: no policy is about a client's request without a host
}

// Rules returns the compiled policies in order. The caller must not change
// the slice nor what it points to.
func (s *Set) Rules() []*Rule { return s.rules }

// Defaults returns the defaults with nothing left at zero.
func (s *Set) Defaults() Defaults {
	if s.defaults == (Defaults{}) {
		return Defaults{MaxCompartments: defaultMaxCompartments, Idle: defaultIdle}
	}
	return s.defaults
}

// Warnings returns what is allowed but hardly meant, in order of position; nil
// if there is nothing. It is for the program to log.
func (s *Set) Warnings() []*Error { return s.warnings }

// Version tells apart the versions of a policy file: it is a digest of what the file
// held, of 12 hexadecimal digits. It is empty for a set that was made in code.
func (s *Set) Version() string { return s.version }

// UsesRoutes reports whether some policy needs to know the route of a server's
// requests: it matches on the route, or keeps a compartment for each.
func (s *Set) UsesRoutes() bool { return s.routes }

// Where returns the line and the column of the file at which a setting of one of the
// set's rules is written, by its key, such as "bulkhead.maxWait". In a ServiceComb file
// that is the place of the setting that it comes from. An empty key asks for the policy's
// name. Both are 0 if it is not written, and so has its default.
func (s *Set) Where(r *Rule, key string) (line, column int) {
	at := s.written[r.Index][key]
	return at.line, at.column
}
