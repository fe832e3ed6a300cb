package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// kind says how a variable's text is checked before it is read into its field.
type kind int

const (
	kindOther    kind = iota // by the UnmarshalText of the field's own type
	kindChoice               // one of field.choices
	kindPath                 // an absolute path
	kindNumber               // decimal digits
	kindMillis               // decimal digits, read into a time.Duration
	kindDuration             // a Go duration
)

// The values of the effect tag; without the tag a variable has its effect.
const (
	effectNone    = "none"
	effectRefused = "refused"
)

// field is what the tags of one field of Config say.
type field struct {
	index        int    // in Config
	name         string // of the variable
	def          string // default, empty for none
	shownDef     string // default as the table prints it
	doc          string
	kind         kind
	choices      []string
	minimum      int64 // with maximum: the inclusive bounds, in the variable's unit
	maximum      int64
	minText      string // as in the tag
	maxText      string
	effect       string
	secret       bool
	emptyIsUnset bool // no number, and without a fixed default
}

// fields are Config's, in its order, which is the order of the table. A tag that
// makes no sense panics: it is a mistake in this package that any call shows.
var fields = sync.OnceValue(func() []field {
	t := reflect.TypeFor[Config]()
	all := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		all = append(all, newField(i, t.Field(i)))
	}
	return all
})

func newField(index int, sf reflect.StructField) field {
	f := field{
		index:    index,
		name:     sf.Tag.Get("env"),
		def:      sf.Tag.Get("envDefault"),
		shownDef: sf.Tag.Get("default"),
		doc:      sf.Tag.Get("doc"),
		minText:  sf.Tag.Get("min"),
		maxText:  sf.Tag.Get("max"),
		effect:   sf.Tag.Get("effect"),
		secret:   sf.Tag.Get("secret") == "true",
	}
	if f.shownDef == "" {
		f.shownDef = f.def
	}
	f.setKind(sf)
	f.emptyIsUnset = f.def == "" && (f.kind == kindOther || f.kind == kindPath)
	if f.hasBounds() {
		f.setBounds()
	}
	return f
}

func (f *field) setKind(sf reflect.StructField) {
	if choices := sf.Tag.Get("oneof"); choices != "" {
		f.kind, f.choices = kindChoice, strings.Split(choices, ",")
		return
	}
	switch tag := sf.Tag.Get("kind"); tag {
	case "path":
		f.kind = kindPath
	case "ms":
		f.kind = kindMillis
	case "":
		switch sf.Type {
		case reflect.TypeFor[int](), reflect.TypeFor[int64]():
			f.kind = kindNumber
		case reflect.TypeFor[time.Duration]():
			f.kind = kindDuration
		}
	default:
		panic("config: unknown kind " + tag + " of " + f.name)
	}
}

func (f *field) setBounds() {
	var errMin, errMax error
	f.minimum, errMin = f.number(f.minText)
	f.maximum, errMax = f.number(f.maxText)
	if err := errors.Join(errMin, errMax); err != nil || f.minimum >= f.maximum {
		panic(fmt.Sprintf("config: bad bounds of %s: %v", f.name, err))
	}
}

func (f field) hasBounds() bool {
	return f.kind == kindNumber || f.kind == kindMillis || f.kind == kindDuration
}

// explanation is the doc tag with the bounds, so that no text can contradict
// what Load accepts.
func (f field) explanation() string {
	if !f.hasBounds() {
		return f.doc
	}
	return fmt.Sprintf("%s (%s to %s)", f.doc, f.minText, f.maxText)
}

// number reads a value in the variable's own unit. Digits only: signs, spaces
// and exponents are typing mistakes more often than numbers.
func (f field) number(raw string) (int64, error) {
	if f.kind == kindDuration {
		d, err := time.ParseDuration(raw)
		return int64(d), err
	}
	n, err := strconv.ParseUint(raw, 10, 63)
	return int64(n), err
}

// normalize checks raw, which is not empty, and returns it in the form that the
// env package reads.
func (f field) normalize(raw string) (string, error) {
	switch f.kind {
	case kindChoice:
		if !slices.Contains(f.choices, raw) {
			return "", f.expected(raw)
		}
	case kindPath:
		path, ok := cleanPath(raw)
		if !ok {
			return "", f.expected(raw)
		}
		return path, nil
	case kindNumber, kindMillis, kindDuration:
		n, err := f.number(raw)
		if err != nil || n < f.minimum || n > f.maximum {
			return "", f.expected(raw)
		}
		if f.kind == kindMillis {
			return raw + "ms", nil
		}
	}
	return raw, nil
}

// expected is the error for a value that the variable cannot have.
func (f field) expected(raw string) error {
	var want string
	switch f.kind {
	case kindOther:
		return errors.New("must not be empty")
	case kindChoice:
		want = list(f.choices)
	case kindPath:
		want = "an absolute path"
	case kindNumber:
		want = fmt.Sprintf("a whole number from %s to %s", f.minText, f.maxText)
	case kindMillis:
		want = fmt.Sprintf("a whole number of milliseconds from %s to %s", f.minText, f.maxText)
	case kindDuration:
		want = fmt.Sprintf("a duration with a unit from %s to %s", f.minText, f.maxText)
	}
	switch {
	case raw == "":
		return fmt.Errorf("must be %s, got an empty value", want)
	case f.secret:
		return fmt.Errorf("must be %s", want)
	}
	return fmt.Errorf("must be %s, got %s", want, quote(raw))
}
