package policy

// A table is a map for what has few keys more often than many: up to fewKeys of them
// are looked through, which takes less time than a map.
type table[V any] struct {
	few  []keyed[V]
	many map[string]*V // nil while few holds all
}

type keyed[V any] struct {
	key   string
	value *V
}

const fewKeys = 6

func (t *table[V]) isEmpty() bool { return t.many == nil && len(t.few) == 0 }

// get returns the value of a key, nil if there is none.
func (t *table[V]) get(key string) *V {
	if t.many != nil {
		return t.many[key]
	}
	for i := range t.few {
		if t.few[i].key == key {
			return t.few[i].value
		}
	}
	return nil
}

// make returns the value of a key, made if need be.
func (t *table[V]) make(key string) *V {
	v := t.get(key)
	if v != nil {
		return v
	}
	v = new(V)
	switch {
	case t.many != nil:
		t.many[key] = v
	case len(t.few) < fewKeys:
		t.few = append(t.few, keyed[V]{key, v})
	default:
		t.many = make(map[string]*V, 2*fewKeys)
		for _, k := range t.few {
			t.many[k.key] = k.value
		}
		t.few = nil
		t.many[key] = v
	}
	return v
}
