package rules

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/net/bpf"
)

// compact returns a program that does the same with fewer instructions: none is there twice that leads to the same places, and
// jumps to jumps are gone. A filter is loaded for every command, and the kernel takes time for each instruction.
//
// It goes from the end to the beginning, as jumps lead forward only: where they lead is there before they are.
func compact(prog []bpf.Instruction) []bpf.Instruction {
	c := compactor{seen: map[step]label{}}
	at := make([]label, len(prog)+1)
	for i, in := range slices.Backward(prog) {
		switch in := in.(type) {
		case bpf.Jump:
			at[i] = at[i+1+int(in.Skip)]
		case bpf.JumpIf:
			yes, no := at[i+1+int(in.SkipTrue)], at[i+1+int(in.SkipFalse)]
			at[i] = c.branch(bpf.JumpIf{Cond: in.Cond, Val: in.Val}, yes, no)
		default:
			at[i] = c.emit(step{in, at[i+1], at[i+1]})
		}
	}
	c.near(at[0], 0) // where the beginning was there already, as a part of something else, it is not what was put last
	slices.Reverse(c.reversed)
	return c.reversed
}

// compactor holds a program that grows from its end.
type compactor struct {
	reversed []bpf.Instruction
	seen     map[step]label
}

// label is the number of instructions from a place to the end.
type label int

// step is an instruction without its own jumps, and where it leads.
type step struct {
	in      bpf.Instruction
	yes, no label
}

func (c *compactor) branch(in bpf.JumpIf, yes, no label) label {
	if yes == no {
		return yes
	}
	return c.emit(step{in, yes, no})
}

// emit puts an instruction before the others, unless it is there.
func (c *compactor) emit(s step) label {
	if _, ends := s.in.(bpf.RetConstant); ends {
		s.yes, s.no = 0, 0
	}
	if l, ok := c.seen[s]; ok {
		return l
	}
	in := s.in
	switch jump := in.(type) {
	case bpf.RetConstant:
	case bpf.JumpIf:
		// The farther one first: the jump that is put between moves the other on by one.
		yes, no := s.yes, s.no
		for _, to := range slices.SortedFunc(slices.Values([]*label{&yes, &no}), func(a, b *label) int { return cmp.Compare(*a, *b) }) {
			*to = c.near(*to, math.MaxUint8-1)
		}
		jump.SkipTrue, jump.SkipFalse = uint8(c.skip(yes)), uint8(c.skip(no))
		in = jump
	default:
		c.near(s.yes, 0)
	}
	c.reversed = append(c.reversed, in)
	l := label(len(c.reversed))
	c.seen[s] = l
	return l
}

// skip is the number of instructions between the next one to be put and the label.
func (c *compactor) skip(to label) int { return len(c.reversed) - int(to) }

// near returns a place that leads to the label and is at most that many instructions away.
func (c *compactor) near(to label, most int) label {
	if c.skip(to) <= most {
		return to
	}
	c.reversed = append(c.reversed, bpf.Jump{Skip: uint32(c.skip(to))})
	return label(len(c.reversed))
}
