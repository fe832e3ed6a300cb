// Package store keeps the records of commands and the idempotency keys in one SQLite
// database. It is the exec.Store of the daemon.
//
//	<path>       the database, 0600, made on first use
//	<path>-wal   what was committed and is not in the database yet, bounded
//	<path>-shm   the index of the former, shared memory
//
// Two connections write, one at a time. Both survive the death of this process
// (synchronous=NORMAL); the second one also a loss of power (FULL), which costs a sync of the
// disk, and takes what a caller was promised to be able to repeat: an Insert with a key. A few others
// read; they never wait for a writer, nor a writer for them.
//
// A record is stored in two rows, so that a list need not read what it does not show:
// commands has the columns that are searched and a JSON form of the facts, bodies the whole
// Spec and the collected output. The JSON forms are types of their own (form.go): a field of the domain
// may be renamed without a stored record noticing.
//
// What the package refuses to do: to open a file that is a link, that others may access, that is
// damaged, or that another program or a newer bashd has made; to take a schema back; to keep
// a value of an environment variable, stdin, or a path of the server's own, even if handed one; to
// change a record that is terminal; and to write on when its file was removed. It decides nothing
// about what is kept for how long, and starts no goroutine but those of database/sql.
package store
