package runner

import (
	"syscall"
	"unsafe"
)

// regionSize is enough for the longest arguments and environment that the kernel takes, 2 MiB; what is not used costs nothing.
const regionSize = 3 << 20

// region is memory that the runner shares with the process that it has cloned ahead of its command: the calls that are left to
// make, and all that they point at. Both have it at the same address.
type region struct {
	base uintptr
	used uintptr
}

func newRegion() (*region, error) {
	base, _, errno := syscall.Syscall6(syscall.SYS_MMAP, 0, regionSize, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED|syscall.MAP_ANON|syscall.MAP_NORESERVE, ^uintptr(0), 0)
	if errno != 0 {
		return nil, errno
	}
	r := &region{base: base}
	r.clear()
	return r, nil
}

// late is the list of calls in the region.
//
//go:nocheckptr
func (r *region) late() *list { return (*list)(at(r.base)) }

// at makes a pointer of an address that is none of the Go heap's.
//
//go:nocheckptr
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// keptRegion is how much of the region keeps its memory between two jobs: what a short command needs. The first touch of a page costs
// more than all the rest of a job.
const keptRegion = 32 << 10

// clear forgets everything, the values of an environment for one.
//
//go:nocheckptr
func (r *region) clear() {
	if r.used > keptRegion {
		const remove = 9 // MADV_REMOVE
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, r.base+keptRegion, regionSize-keptRegion, remove)
	}
	clear(unsafe.Slice((*byte)(at(r.base)), keptRegion))
	r.used = unsafe.Sizeof(list{})
}

// take returns the address of n bytes, aligned for a pointer; 0: there is no room.
func (r *region) take(n uintptr) uintptr {
	r.used = (r.used + 7) &^ 7
	if n > regionSize || r.used+n > regionSize {
		return 0
	}
	addr := r.base + r.used
	r.used += n
	return addr
}

// str stores a string as C has it.
//
//go:nocheckptr
func (r *region) str(s string) uintptr {
	addr := r.take(uintptr(len(s)) + 1)
	if addr != 0 {
		copy(unsafe.Slice((*byte)(at(addr)), len(s)+1), s)
		*(*byte)(at(addr + uintptr(len(s)))) = 0
	}
	return addr
}

// strs stores strings as execve takes them. It returns 0 where one of them found no room.
//
//go:nocheckptr
func (r *region) strs(ss []string) uintptr {
	addr := r.take(uintptr(len(ss)+1) * unsafe.Sizeof(uintptr(0)))
	if addr == 0 {
		return 0
	}
	ptrs := unsafe.Slice((*uintptr)(at(addr)), len(ss)+1)
	for i, s := range ss {
		if ptrs[i] = r.str(s); ptrs[i] == 0 {
			return 0
		}
	}
	ptrs[len(ss)] = 0
	return addr
}

// words stores numbers.
//
//go:nocheckptr
func (r *region) words(ws ...uint64) uintptr {
	addr := r.take(uintptr(len(ws)) * 8)
	if addr != 0 {
		copy(unsafe.Slice((*uint64)(at(addr)), len(ws)), ws)
	}
	return addr
}
