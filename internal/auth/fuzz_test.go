package auth

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// parseErrors are all that parse says; nothing in them depends on the content
// but numbers.
var parseErrors = regexp.MustCompile(`^line (\d+): (` + strings.Join([]string{
	`must be name:hash or name:hash:role,role…`,
	`the name must be 1 to 64 of A-Z a-z 0-9 \. _ -`,
	`the hash must be 64 hex digits, the SHA-256 of the token`,
	`the hash is that of an empty token`,
	`the hash is that of line \d+; a token has one name and one set of roles`,
	`no role follows the second colon; leave both out for the role run`,
	`role \d+ is unknown; the roles are run, approve, approve-all and metrics`,
	`role \d+ is there twice`,
}, "|") + `)$`)

// FuzzParse: whatever is in the file, parse names a line of it and quotes
// nothing, or returns what the same lines, written anew, are read as.
func FuzzParse(f *testing.F) {
	f.Add("")
	f.Add("# c\r\n\r\nci:" + hashOf("a") + "\nci:" + hashOf("b") + ":run,metrics\n")
	f.Add("ci:" + hashOf("a") + "\nx:" + hashOf("a"))
	for line := range badLines {
		f.Add(line + "\n")
	}
	f.Fuzz(func(t *testing.T, content string) {
		entries, err := parse(content)
		if err != nil {
			m := parseErrors.FindStringSubmatch(err.Error())
			if m == nil || entries != nil {
				t.Fatalf("%v: %v", entries, err)
			}
			if n, err := strconv.Atoi(m[1]); err != nil || n < 1 || n > strings.Count(content, "\n")+1 {
				t.Errorf("there is no line %s", m[1])
			}
			return
		}
		var again strings.Builder
		for _, e := range entries {
			if checkName(e.identity.Name) != nil || len(e.identity.Roles) == 0 || checkRoles(e.identity.Roles) != nil || e.hash == noToken {
				t.Errorf("%+v", e)
			}
			again.WriteString(formatLine(e.identity.Name, e.hash, e.identity.Roles) + "\r\n")
		}
		second, err := parse(again.String())
		if err != nil || len(second) != len(entries) {
			t.Fatalf("written anew: %d of %d, %v", len(second), len(entries), err)
		}
		for i := range second {
			if !sameEntry(second[i], entries[i]) {
				t.Errorf("%+v was read as %+v", entries[i], second[i])
			}
		}
	})
}

func sameEntry(a, b entry) bool {
	return a.hash == b.hash && formatLine(a.identity.Name, a.hash, a.identity.Roles) == formatLine(b.identity.Name, b.hash, b.identity.Roles) && a.identity.ID == b.identity.ID
}
