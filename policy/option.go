package policy

// A LoadOption changes how [Load] and [Parse] read a file. Options for what a file
// does not have say nothing.
type LoadOption interface{ apply(*loadOptions) }

type loadOptions struct {
	lenient bool
	service service
}

type loadOption func(*loadOptions)

func (f loadOption) apply(o *loadOptions) { f(o) }

func newLoadOptions(opts []LoadOption) loadOptions {
	var o loadOptions
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	return o
}

// Lenient has a ServiceComb governance file read as ServiceComb itself reads it:
// what it ignores or misreads without a word, such as an unknown key or a misspelt
// condition, is a warning instead of an error, and does what it does there. A policy
// that it drops is dropped. A file in the native form is read strictly all the same.
func Lenient() LoadOption {
	return loadOption(func(o *loadOptions) { o.lenient = true })
}

// Service says which service this process is, and of which version. In a ServiceComb
// governance file, what has a list of services is loaded if the list names this one.
// Without this option the file itself is asked, which may say so under
// servicecomb.service or spring.application. An empty version is not known.
func Service(name, version string) LoadOption {
	return loadOption(func(o *loadOptions) { o.service = service{name, version} })
}
