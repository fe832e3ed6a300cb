package config

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/caarlos0/env/v10"
)

// Load returns the configuration that environ, in the form of os.Environ,
// describes. Only BASHD_* variables, HOME, XDG_STATE_HOME, XDG_DATA_HOME and
// DSH_HOME are looked at; the process's own environment is not.
//
// The error is one line that begins with the name of the variable at fault, and
// is safe to print: it contains no value that may be a secret.
func Load(environ []string) (Config, error) {
	given, err := collect(environ)
	if err != nil {
		return Config{}, err
	}
	ready := make(map[string]string)
	for _, f := range fields() {
		raw, err := f.resolve(given, environ)
		if err != nil {
			return Config{}, fmt.Errorf("%s: %w", f.name, err)
		}
		ready[f.name] = raw
	}
	var c Config
	if err := env.ParseWithOptions(&c, env.Options{Environment: ready}); err != nil {
		return Config{}, parseError(err)
	}
	if err := c.contradiction(); err != nil {
		return Config{}, err
	}
	if err := c.refused(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// resolve returns the variable's value, or its default, in the form that the
// env package reads into the field; empty where the field keeps its zero value.
func (f field) resolve(given map[string]string, environ []string) (string, error) {
	raw, isSet := given[f.name]
	switch {
	case isSet && raw == "" && !f.emptyIsUnset:
		return "", f.expected("")
	case raw == "" && derived[f.name] != nil:
		var err error
		if raw, err = derived[f.name](environ); err != nil {
			return "", err
		}
	case raw == "":
		raw = f.def
	}
	if raw == "" {
		return "", nil
	}
	return f.normalize(raw)
}

// parseError names the variable instead of the struct's field. Numbers, choices
// and paths have been checked before, so what arrives here comes from the
// UnmarshalText of this package's own types.
func parseError(err error) error {
	all, ok := errors.AsType[env.AggregateError](err)
	if !ok || len(all.Errors) == 0 {
		return err
	}
	pe, ok := errors.AsType[env.ParseError](all.Errors[0])
	if !ok {
		return all.Errors[0]
	}
	sf, _ := reflect.TypeFor[Config]().FieldByName(pe.Name)
	return fmt.Errorf("%s: %w", sf.Tag.Get("env"), pe.Err)
}
