package storetest

import (
	"fmt"
	"reflect"
	"time"

	"bashd/internal/exec"
)

// filled returns a terminal record in which every field has a value of its own, none of them zero, so that a
// field that an implementation forgets shows, even one that does not exist yet. Other seeds give other values.
func filled(seed int) exec.Record {
	var r exec.Record
	f := filler{seed * 10_000}
	f.fill("Record", reflect.ValueOf(&r).Elem())
	// These values mean something to a Store.
	r.Run.Kind, r.Run.Status = exec.Background, exec.StatusKilled
	r.Run.Spec.Owner = r.Run.Owner
	return r
}

// filler makes values, each another one.
type filler struct{ n int }

func (f *filler) fill(name string, v reflect.Value) {
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.UnixMicro(1_700_000_000_000_000 + int64(f.n)).UTC()))
		return
	case []byte:
		v.SetBytes(fmt.Appendf(nil, "%s %d\x00\xff\n", name, f.n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%s <%d> & \"é\"", name, f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(name, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(name, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(name+" key", key)
			f.fill(name+" value", value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Type().Field(i).Name, v.Field(i))
		}
	default:
		panic(fmt.Sprintf("storetest cannot fill %s, a %s: teach it", name, v.Type()))
	}
}

// plainly is r with nothing left that two equal records may differ in: empty and missing are the same.
func plainly(r exec.Record) exec.Record {
	level(reflect.ValueOf(&r).Elem())
	return r
}

func level(v reflect.Value) {
	if t, ok := v.Interface().(time.Time); ok {
		v.Set(reflect.ValueOf(micro(t)))
		return
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			v.SetZero()
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			level(field)
		}
	default: // of what else there is, equal values are the same
	}
}
