// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import "sync"

// Memory guards what this process keeps in memory. It remembers each resource that was written, 100 bytes and
// its name, until the process ends, and nothing after that: what outlives the process needs a
// guard that does, too. The zero value is ready for use, by several goroutines.
type Memory struct {
	mu    sync.Mutex
	known map[string]*resource
}

type resource struct {
	sync.RWMutex
	newest uint64
}

// of is what is known of a resource.
func (m *Memory) of(name string) *resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[name]
	if r == nil {
		r = &resource{}
		if m.known == nil {
			m.known = map[string]*resource{}
		}
		m.known[name] = r
	}
	return r
}

// Write has work change a resource, unless the fence is too small. No other call reads or writes
// it meanwhile: work should not wait for long. The error is a *[StaleError], or that
// of work. The fence counts even if work fails, since it may have done a part.
func (m *Memory) Write(resource string, fence uint64, work func() error) error {
	if err := Check(resource, fence, 0); err != nil {
		return err
	}
	r := m.of(resource)
	r.Lock()
	defer r.Unlock()
	if err := Check(resource, fence, r.newest); err != nil {
		return err
	}
	r.newest = fence
	return work()
}

// Read has work read a resource, unless the fence is smaller than that of a write. Readers
// work together, and writers wait. The error is as for Write.
func (m *Memory) Read(resource string, fence uint64, work func() error) error {
	r := m.of(resource)
	r.RLock()
	defer r.RUnlock()
	if err := Check(resource, fence, r.newest); err != nil {
		return err
	}
	return work()
}
