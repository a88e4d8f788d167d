package policy

// Check reads a file as [Parse] does, and returns all that there is to say of it: errors,
// for which Parse would refuse it, and warnings, which a set that Parse returns has too.
// Both are in order of position. With errors there may be warnings missing that only a
// whole file can have.
func Check(name string, data []byte, opts ...LoadOption) (errors, warnings Errors) {
	p := &problems{file: name}
	if set, _ := p.parse(data, opts); set != nil {
		return nil, set.warnings
	}
	sortByPosition(p.errors)
	sortByPosition(p.warns)
	return p.errors, p.warns
}
