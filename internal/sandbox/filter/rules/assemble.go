package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Arches are the architectures that there are programs for, as GOARCH names them.
var Arches = []string{"amd64", "arm64"}

// Assemble returns the program for an architecture, as instructions that bpf.Assemble takes. mayChangeMetadata lets changes of
// file metadata through. It fails for an architecture that is not in Arches.
func Assemble(arch string, mayChangeMetadata bool) ([]bpf.Instruction, error) {
	audit, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[arch]
	if !ok {
		return nil, fmt.Errorf("no system call filter for %s", arch)
	}
	spans, err := spansOf(arch, verdicts(mayChangeMetadata))
	if err != nil {
		return nil, err
	}
	prog, err := resolve(slices.Concat([]bpf.Instruction{
		// A call by another architecture's numbers would pass for something else. That of x32 is this one with a bit in
		// the number, which is thereby beyond every known one.
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: audit, SkipTrue: 1},
		absent.ret(),
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
	}, tree(spans)), spans)
	if err != nil {
		return nil, err
	}
	return compact(prog), nil
}

// span is a range of call numbers with one verdict: from first to the next span's first.
type span struct {
	first uint32
	check
}

// spansOf returns the verdicts by number, gaps and everything beyond the last as absent.
func spansOf(arch string, all map[string]check) (spans []span, err error) {
	byNumber := map[uint32]check{}
	last := uint32(0)
	for name, c := range all {
		numbers, ok := numbers[name]
		if !ok {
			return nil, fmt.Errorf("a verdict on %s, which has no number", name)
		}
		number := numbers.amd64
		if arch == "arm64" {
			number = numbers.arm64
		}
		if number != none {
			byNumber[uint32(number)] = c
			last = max(last, uint32(number))
		}
	}
	for n := range last + 2 {
		c, ok := byNumber[n]
		if !ok {
			c = absent
		}
		if len(spans) == 0 || spans[len(spans)-1].name != c.name {
			spans = append(spans, span{n, c})
		}
	}
	return spans, nil
}

// tree finds a number's span by halving: the kernel runs the program once for every number when it takes it, to learn which calls
// go through whatever their arguments are, and a chain of comparisons would make each command pay for that.
func tree(spans []span) []bpf.Instruction {
	if len(spans) == 1 {
		return leaf(spans[0].check)
	}
	middle := spans[len(spans)/2]
	left, right := tree(spans[:len(spans)/2]), tree(spans[len(spans)/2:])
	jump := []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: middle.first, SkipTrue: uint8(len(left))}}
	if len(left) > math.MaxUint8 { // too far for a condition
		jump = []bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: middle.first, SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(left))},
		}
	}
	return slices.Concat(jump, left, right)
}

// leaf is a check that is one return, or the jump to one that is not.
func leaf(c check) []bpf.Instruction {
	if len(c.code) == 1 {
		return c.code
	}
	return []bpf.Instruction{jumpTo(c.name)}
}

// jumpTo is a jump to the check of that name, until resolve knows where that is.
type jumpTo string

// Assemble makes jumpTo a bpf.Instruction; only resolved ones can be assembled.
func (j jumpTo) Assemble() (bpf.RawInstruction, error) {
	return bpf.RawInstruction{}, fmt.Errorf("jump to %q left over", string(j))
}

// resolve puts the checks behind the tree, each once, and the way to them into its jumps.
func resolve(prog []bpf.Instruction, spans []span) ([]bpf.Instruction, error) {
	size := len(prog)
	at := map[string]int{}
	checks := slices.Clone(spans)
	slices.SortStableFunc(checks, func(a, b span) int { return cmp.Compare(a.name, b.name) })
	for _, s := range checks {
		if _, done := at[s.name]; done || len(s.code) == 1 {
			continue
		}
		at[s.name] = len(prog)
		prog = append(prog, s.code...)
	}
	for i, in := range prog[:size] {
		if j, ok := in.(jumpTo); ok {
			target, ok := at[string(j)]
			if !ok {
				return nil, fmt.Errorf("no check %q", string(j))
			}
			prog[i] = bpf.Jump{Skip: uint32(target - i - 1)}
		}
	}
	return prog, nil
}
