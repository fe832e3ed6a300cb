package denial

import (
	"path"
	"strings"
	"syscall"
)

// kind is what an operation needs of the file system; it decides which
// permission would have been checked without the sandbox.
type kind int

const (
	unclear kind = iota // the message does not tell; Write is tried, then Read
	change              // write to the file, or create it in its directory
	entry               // remove, rename or add the directory entry itself
	link                // the existing file of a new hard link
	meta                // change mode, times or attributes
	read                // open for reading, list
	enter               // change into the directory
	execute             // execute the file
	none                // nothing that the sandbox's file rules could have refused
)

// op is what the policy calls the operation.
func (k kind) op() Op {
	switch k {
	case meta:
		return Metadata
	case read, enter, execute:
		return Read
	}
	return Write
}

// programs maps a program to the kind of operation that its messages speak of
// in any language. Those of kind unclear are listed because a bare word in
// their messages is a file name.
var programs = kinds([]wordList{
	{read, "cat ls head tail wc grep egrep fgrep zgrep find diff cmp less more file stat du od xxd " +
		"hexdump strings md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum readlink " +
		"realpath tree nl tac rev cut paste comm join fold fmt column base32 base64 jq zcat bzcat xzcat"},
	{change, "touch mkdir tee truncate mkfifo mknod mktemp install split csplit fallocate shred"},
	{entry, "rm rmdir unlink mv ln link"},
	{meta, "chmod setfattr setfacl"},
	{execute, "env nohup timeout nice ionice setsid stdbuf xargs make time"},
	{unclear, "cp sort uniq shuf tar dd sed awk gawk mawk ed gzip gunzip bzip2 xz zstd zip unzip patch " +
		"gcc cc g++ ld as ar sqlite3 rsync curl wget"},
	// These speak of other hosts, of processes, or of what needs a capability.
	{none, "ssh scp sftp kill pkill killall renice chown chgrp sudo su mount umount ping"},
})

// calls maps the operation before a path in the messages of Go ("open /x"),
// Node ("open '/x'") and in English ones to its kind.
var calls = kinds([]wordList{
	{unclear, "open opening copyfile cp"},
	{change, "mkdir mkdtemp truncate ftruncate mknod mkfifo write"},
	{entry, "unlink unlinkat remove removeall rm rmdir rename link symlink"},
	{meta, "chmod fchmod lchmod chtimes utime futime lutime utimes"},
	{read, "stat lstat scandir readdir readdirent fdopendir opendir readlink realpath access read watch"},
	{enter, "chdir"},
	{execute, "fork/exec exec spawn"},
	{none, "chown fchown lchown listen bind connect dial socket setns unshare"},
})

// leadIns are beginnings of messages, in lower case, behind which the rest is
// the path.
var leadIns = []struct {
	text    string
	kind    kind
	certain bool // a bare word behind it is a file, too
}{
	{"cannot mkdir ", change, true},
	{"unable to create file ", change, true},
	{"cannot create ", change, false},
	{"can't create ", change, false},
	{"can't open ", unclear, false},
	{"cannot open output file ", change, false},
	{"unable to unlink old ", entry, false},
}

// hints are English fragments that tell the kind where the program does not.
var hints = []struct {
	text string
	kind kind
}{
	{"changing ownership of", none},
	{"preserving ownership for", none},
	{"cannot change ownership", none},
	{"permissions of", meta},
	{"permissions for", meta},
	{"setting times", meta},
	{"preserving times", meta},
	{"setting attribute", meta},
	{"cannot utime", meta},
	{"cannot change mode", meta},
	{"for writing", change},
	{"for output", change},
	{"cannot create", change},
	{"unable to create", change},
	{"could not create", change},
	{"for reading", read},
	{"cannot stat", read},
	{"cannot access", read},
	{"cannot read", read},
	{"unable to access", read},
	{"open directory", read},
	{"unable to unlink", entry},
	{"failed to remove", entry},
	{"cannot remove", entry},
	{"failed to unlink", entry},
	{"failed to rename", entry},
	{"unable to rename", entry},
	{"could not rename", entry},
	{"bad interpreter", execute},
	{"cannot execute", execute},
	{"failed to run command", execute},
}

// wordList is a list of words, separated by spaces, that stand for one kind.
type wordList struct {
	kind  kind
	words string
}

func kinds(lists []wordList) map[string]kind {
	m := make(map[string]kind)
	for _, l := range lists {
		for word := range strings.FieldsSeq(l.words) {
			m[word] = l.kind
		}
	}
	return m
}

// kindOf derives the kind from the program's name and the wording of text.
func kindOf(program, text string) kind {
	byName, known := programs[path.Base(program)]
	if byName == none && known {
		return none
	}
	text = strings.ToLower(text)
	byWord := unclear
	for _, h := range hints {
		if strings.Contains(text, h.text) {
			byWord = h.kind
			break
		}
	}
	if byName != unclear && byWord != none && byWord != meta {
		return byName
	}
	return byWord
}

// settle reconciles what the message says with how the command ended. It
// returns none for an operation that cannot fail with errno.
func (k kind) settle(errno syscall.Errno, exitCode int) kind {
	switch errno {
	case syscall.EROFS: // only changes fail so
		switch k {
		case unclear:
			return change
		case read, enter, execute:
			return none
		}
	case syscall.EPERM: // contents are refused by EACCES, metadata by EPERM
		switch k {
		case unclear, change:
			return meta
		case read, enter, execute:
			return none
		}
	}
	// Exit status 126 means that something was found but not executed, and
	// such a message looks the same as one of a failed redirection.
	if k == unclear && exitCode == 126 {
		return execute
	}
	return k
}

// cutLeadIn removes a beginning of leadIns from text.
func cutLeadIn(text string) (file string, k kind, certain, found bool) {
	for _, l := range leadIns {
		if n := len(l.text); len(text) > n && strings.EqualFold(text[:n], l.text) {
			return text[n:], l.kind, l.certain, true
		}
	}
	return text, unclear, false, false
}
