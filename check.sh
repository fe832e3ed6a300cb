#!/usr/bin/env bash
# Says whether the tree is clean. Each failure comes with the command that mends it.
set -u
cd "$(dirname "$0")" || exit 2
failed=0

# check NAME MEND COMMAND…: clean when COMMAND succeeds and prints nothing.
check() {
	local name=$1 mend=$2 out
	shift 2
	if out=$("$@" 2>&1) && [ -z "$out" ]; then
		printf 'ok    %s\n' "$name"
		return
	fi
	failed=1
	printf 'FAIL  %s\n%s\n      mend it with: %s\n' "$name" "$out" "$mend"
}

check 'go.mod is tidy' 'go mod tidy' go mod tidy -diff
check 'format' 'go tool gofumpt -w .' go tool gofumpt -l .
check 'go fix' 'go fix ./...' go fix -diff ./...
check 'vet' 'read what it says' go vet ./...
check 'vet for arm64' 'read what it says' env GOARCH=arm64 go vet ./...
check 'staticcheck' 'read what it says' go tool staticcheck ./...
exit $failed
