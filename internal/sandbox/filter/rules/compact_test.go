package rules

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestCompact: a compacted program returns what it did before, for random ones of all shapes, long ones among them.
func TestCompact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	smaller := 0
	for range 300 {
		prog := randomProgram(random, 1+random.IntN(600))
		short := compact(prog)
		before, err := bpf.NewVM(prog)
		if err != nil {
			t.Fatal(err)
		}
		after, err := bpf.NewVM(short)
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			data := make([]byte, 64)
			for i := range 16 {
				binary.BigEndian.PutUint32(data[4*i:], uint32(random.IntN(8)))
			}
			want, err := before.Run(data)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := after.Run(data); err != nil || got != want {
				t.Fatalf("%d, not %d (%v)\n%v\n%v", got, want, err, prog, short)
			}
		}
		if len(short) < len(prog) {
			smaller++
		}
	}
	if smaller < 250 {
		t.Errorf("only %d of 300 programs became smaller", smaller)
	}
}

// randomProgram has about n instructions, and an end for every way.
func randomProgram(random *rand.Rand, n int) (prog []bpf.Instruction) {
	prog = append(prog, bpf.LoadAbsolute{Off: dataNumber, Size: 4})
	for i := 1; i < n; i++ {
		left := n - i // instructions after this one, returns at the end included
		switch random.IntN(6) {
		case 0:
			prog = append(prog, bpf.LoadAbsolute{Off: 4 * uint32(random.IntN(16)), Size: 4})
		case 1:
			prog = append(prog, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(random.IntN(8))})
		case 2:
			prog = append(prog, bpf.Jump{Skip: uint32(random.IntN(min(left, 500)))})
		default:
			most := min(left, 256)
			prog = append(prog, bpf.JumpIf{
				Cond: bpf.JumpTest(random.IntN(8)), Val: uint32(random.IntN(8)),
				SkipTrue: uint8(random.IntN(most)), SkipFalse: uint8(random.IntN(most)),
			})
		}
	}
	return append(prog, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(random.IntN(3))})
}
