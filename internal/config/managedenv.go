package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

const redacted = "[redacted]"

// ManagedEnv holds the operator's DSH_* variables. However it is printed, logged
// or marshalled it shows names only; Map is the one way to the values. They sit
// in a closure because fmt looks through structs, maps and pointers without
// asking their String method wherever it meets an unexported field, but prints
// a function as an address. So two of them are never reflect.DeepEqual unless
// they are empty.
type ManagedEnv struct{ values func() map[string]string }

// builtInManaged are the names whose values bashd determines itself.
var builtInManaged = []string{"DSH_HOME", "DSH_SHELL", "DSH_SESSION_ID", "DSH_TASK_ID", "DSH_SESSION_JSONL"}

// UnmarshalText reads items NAME=value separated by ",". A name matches
// DSH_[A-Z0-9_]+, is no built-in and occurs once; a value may be empty, is taken
// as it is, blanks included, and cannot contain a comma. Errors count items and
// repeat nothing of them: after a comma inside a value, a piece of that value
// stands where a name is expected.
func (m *ManagedEnv) UnmarshalText(text []byte) error {
	byName := make(map[string]string)
	for i, item := range split(string(text), ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			return fmt.Errorf("item %d is not NAME=value (a value cannot contain a comma)", i+1)
		}
		if err := checkManaged(name, value); err != nil {
			return fmt.Errorf("item %d %w", i+1, err)
		}
		if _, ok := byName[name]; ok {
			return fmt.Errorf("item %d has the name of an earlier one", i+1)
		}
		byName[name] = value
	}
	m.values = nil
	if len(byName) > 0 {
		m.values = func() map[string]string { return maps.Clone(byName) }
	}
	return nil
}

func checkManaged(name, value string) error {
	rest, ok := strings.CutPrefix(name, "DSH_")
	switch {
	case !ok || !consistsOf(rest, upper+digits+"_"):
		return errors.New("has a name that does not match DSH_[A-Z0-9_]+")
	case slices.Contains(builtInManaged, name):
		return errors.New("has one of the names that are built in: " + list(builtInManaged))
	case strings.ContainsRune(value, 0):
		return errors.New("has a value with a NUL byte")
	}
	return nil
}

// Map returns a copy, for the environment of a command and nothing else.
func (m ManagedEnv) Map() map[string]string {
	if m.values == nil {
		return nil
	}
	return m.values()
}

// Names returns the names in order.
func (m ManagedEnv) Names() []string { return slices.Sorted(maps.Keys(m.Map())) }

// String shows the names in the form of the variable, with redacted values.
func (m ManagedEnv) String() string {
	names := m.Names()
	for i, name := range names {
		names[i] = name + "=" + redacted
	}
	return strings.Join(names, ",")
}

// MarshalText is String, for encoders.
func (m ManagedEnv) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// LogValue is String, for slog.
func (m ManagedEnv) LogValue() slog.Value { return slog.StringValue(m.String()) }
