// Package output keeps what a command prints: a log, addressed by byte offset.
//
// One writer appends; any number of readers follow at their own pace by
// naming the offset they have come to. Results, incremental reads, long polls,
// event streams, late joiners and reconnecting clients are all that one call.
//
//	          0             start           flushed      end
//	stream    |---------------+----------------+----------|
//	file      [================================]             complete from byte 0, or not there at all
//	memory                    [===========================]  a ring of the last TailBytes
//	read from [ file         ][ memory                    ]  then wait, or io.EOF once sealed
//
// While there is a file, it reaches at least to where the memory starts
// (flushed ≥ start), so every byte can be delivered. Without one, what lies
// before start is a gap, and the reader is told its size.
//
// The file is written in one of two ways. Eager: each Append reaches the file
// before a reader hears of it, so what was once delivered survives the death of
// this process. Otherwise the file appears when the memory first overflows, and
// the ring then doubles as its write buffer: the file is brought up to date
// only when bytes that it lacks would be overwritten, and by Seal. That makes a
// few system calls each TailBytes bytes however small the appends are, and costs a
// reader nothing, since what the file lacks is in memory.
//
// Around the log: [AppendText] and [TrimTail] turn bytes into text without
// splitting characters, and [Sealer] makes the cursors that clients hold
// impossible to forge.
//
// What the package refuses to do: to slow the writer down for a reader, to fail a
// command because a disk is full, to keep a file that is not the complete
// stream, to deliver a byte at the wrong offset, and to start a goroutine.
package output
