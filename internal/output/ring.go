package output

// firstRing is what the first byte of a stream allocates.
const firstRing = 512

// ring is the end of a stream in memory. The byte at offset o is
// buf[o % len(buf)]. buf grows by doubling up to limit, and as long as it grows
// it holds the stream from offset 0, so no byte changes its place within it.
type ring struct {
	buf   []byte
	end   int64 // length of the whole stream
	limit int   // the most bytes that are kept
}

// start returns the offset of the first byte still held.
func (r *ring) start() int64 {
	return max(0, r.end-int64(len(r.buf)))
}

// grown returns a buffer large enough for n more bytes: the present one, or a
// larger copy. It changes nothing, so that it can run before a lock is taken.
func (r *ring) grown(n int) []byte {
	need := min(r.end+int64(n), int64(r.limit))
	if need <= int64(len(r.buf)) {
		return r.buf
	}
	buf := make([]byte, min(max(int(need), 2*len(r.buf), firstRing), r.limit))
	copy(buf, r.buf[:r.end])
	return buf
}

// put appends p, of which the last len(buf) bytes stay. The buffer must have
// been grown for it.
func (r *ring) put(p []byte) {
	r.end += int64(len(p))
	p = p[max(0, len(p)-len(r.buf)):]
	if len(p) == 0 {
		return
	}
	at := int((r.end - int64(len(p))) % int64(len(r.buf)))
	n := copy(r.buf[at:], p)
	copy(r.buf, p[n:])
}

// span returns the bytes [from, to) as the one or two pieces that they lie in.
// They must be held: start ≤ from ≤ to ≤ end.
func (r *ring) span(from, to int64) (a, b []byte) {
	if from == to {
		return nil, nil
	}
	at, n := int(from%int64(len(r.buf))), int(to-from)
	if rest := at + n - len(r.buf); rest > 0 {
		return r.buf[at:], r.buf[:rest]
	}
	return r.buf[at : at+n], nil
}

// read copies bytes from offset from, which must be held, into dst.
func (r *ring) read(dst []byte, from int64) int {
	a, b := r.span(from, min(r.end, from+int64(len(dst))))
	n := copy(dst, a)
	return n + copy(dst[n:], b)
}
