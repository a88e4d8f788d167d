package policy

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

// maxFile bounds what is read, so that a wrong path (a log, a device) ends in an
// error. There is room for more than 10,000 policies.
const maxFile = 4 << 20

// Load reads and checks a policy file; the package documentation gives its form,
// and the governance files of ServiceComb and Spring Cloud Huawei are read too. They
// are told apart by what they hold. If the file can be read but is not right, the error is of type [Errors] and
// holds every problem with its line and column; else it wraps what the file
// system said, such as [io/fs.ErrNotExist]. A file may have up to 4 MiB.
func Load(path string, opts ...LoadOption) (*Set, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, opts...)
}

// readFile returns what a file holds, or as much of it as shows that it is too big.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return data, nil
}

// Parse is [Load] for a file that is already in memory. The name is only for
// messages. The error is of type [Errors].
func Parse(name string, data []byte, opts ...LoadOption) (*Set, error) {
	p := &problems{file: name}
	set, err := p.parse(data, opts)
	if err != nil {
		return nil, err
	}
	set.version = fmt.Sprintf("%x", sha256.Sum256(data))[:versionDigits]
	return set, nil
}

// versionDigits are enough to tell apart the versions of a file.
const versionDigits = 12

func (p *problems) parse(data []byte, opts []LoadOption) (*Set, error) {
	if len(data) > maxFile {
		p.errorf(at{1, 1}, "a policy file may have at most %d bytes", maxFile)
		return nil, p.errors
	}
	docs := p.documents(data)
	for _, doc := range docs {
		mergeKeys(doc)
	}
	switch roots := rootsOf(docs); {
	case belongsToServiceComb(roots):
		return p.serviceComb(data, roots, newLoadOptions(opts))
	case p.foreign(data, roots):
		sortByPosition(p.errors)
		return nil, p.errors
	}
	root := p.document(docs)
	if root == nil {
		sortByPosition(p.errors)
		return nil, p.errors
	}
	d := decoder{problems: p, aliased: maxAliased}
	return compile(p, d.file(root))
}
