// Package prober tells what a confined command can really do on this host.
//
// At the start the daemon runs, for each confined mode, the real runner with a prober in place of bash: its own binary under the name
// [Argv0], which tries some four hundred operations directly by system calls, prints what came of each, and exits. It tries them on a
// [Scene] that the daemon has laid out for the purpose: files outside the roots, hidden files and sockets, and a victim process of
// the command's own user. Then the daemon looks at all of these itself ([Scene.Judge]), bytes and metadata, so that the report
// does not rest on return values alone.
//
// Each effect has an object of its own, so that one success does not hide another. Files outside belong to the command's
// user, so that nothing but the sandbox can refuse the effects on them.
//
// The package concludes nothing: which tier and which gaps follow from the results is package sandbox's to say. It does no harm where an
// operation succeeds: what it does to others' processes and to the host is signal 0, a value that is set already, an open without a
// write, or a call with an argument that the kernel looks at only after it has granted the permission.
//
// It does not protect itself from a prober that is not bashd's own: the nonce and the sum in the output find a truncated or mixed-up
// output, not one that was made with knowledge of the scene.
package prober
