package toolhold

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Keys of struct tags that become keywords of the schema, beside `json`:
//
//	Top *int `json:"top" description:"How many words to return." minimum:"1" maximum:"1000"`
var (
	numbers = []string{"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
	texts   = []string{"description", "pattern", "format"}
)

type schema map[string]any

// members are the properties of an object in the order of the struct's fields: a model reads them in it.
type members []member

type member struct {
	name   string
	schema schema
}

func (m members) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for index, each := range m {
		if index > 0 {
			text = append(text, ',')
		}
		value, err := json.Marshal(each.schema)
		if err != nil {
			return nil, err
		}
		text = append(strconv.AppendQuote(text, each.name), ':')
		text = append(text, value...)
	}
	return append(text, '}'), nil
}

var (
	isTime          = reflect.TypeFor[time.Time]()
	isNumber        = reflect.TypeFor[json.Number]()
	isMarshaler     = reflect.TypeFor[json.Marshaler]()
	isTextMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// schemaText is the JSON Schema of a type as encoding/json reads or writes it. Arguments may leave out what is a
// pointer or has `omitempty` or `omitzero`; a result has everything but what has one of these options.
func schemaText(kind reflect.Type, isArguments bool) string {
	made := maker{isArguments}.schema(kind, nil)
	if isArguments && made["type"] != "object" {
		panic(fmt.Sprintf("toolhold: the arguments of a tool are a struct, and not %s", kind))
	}
	text, err := json.Marshal(made)
	if err != nil {
		panic(fmt.Sprintf("toolhold: the schema of %s is not JSON: %v", kind, err))
	}
	return string(text)
}

type maker struct{ isArguments bool }

// schema makes the schema of a type; inside has the structs around it.
func (m maker) schema(kind reflect.Type, inside []reflect.Type) schema {
	implements := func(what reflect.Type) bool {
		return kind.Implements(what) || reflect.PointerTo(kind).Implements(what)
	}
	switch {
	case kind == isTime:
		return schema{"type": "string", "format": "date-time"}
	case kind == isNumber:
		return schema{"type": "number"}
	case implements(isMarshaler):
		return schema{} // whatever it writes
	case implements(isTextMarshaler):
		return schema{"type": "string"}
	}
	switch kind.Kind() {
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return schema{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return schema{"type": "integer", "minimum": 0}
	case reflect.Interface:
		return schema{}
	case reflect.Pointer:
		return orNull(m.schema(kind.Elem(), inside))
	case reflect.Array:
		return schema{"type": "array", "items": m.schema(kind.Elem(), inside)}
	case reflect.Slice:
		if kind.Elem().Kind() == reflect.Uint8 {
			return m.orNil(schema{"type": "string", "description": "Bytes in base64."})
		}
		return m.orNil(schema{"type": "array", "items": m.schema(kind.Elem(), inside)})
	case reflect.Map:
		if isKey(kind.Key()) {
			return m.orNil(schema{"type": "object", "additionalProperties": m.schema(kind.Elem(), inside)})
		}
	case reflect.Struct:
		properties, required := m.fields(kind, inside)
		made := schema{"type": "object", "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			made["required"] = required
		}
		return made
	}
	panic(fmt.Sprintf("toolhold: %s has no JSON Schema; write InputSchema and OutputSchema yourself", kind))
}

// isKey says whether encoding/json writes keys of this type as the names of an object's members.
func isKey(kind reflect.Type) bool {
	switch kind.Kind() {
	case reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return kind.Implements(isTextMarshaler)
}

// orNil is for what is written as null while it is nil.
func (m maker) orNil(made schema) schema {
	if m.isArguments {
		return made
	}
	return orNull(made)
}

func orNull(made schema) schema {
	if single, ok := made["type"].(string); ok {
		made["type"] = []string{single, "null"}
	}
	return made
}

// found is a field of a struct, or of one embedded in it.
type found struct {
	member
	depth                int
	isTagged, isRequired bool
}

// fields are those of a struct, and of the structs embedded in it, as encoding/json has them; and the names of those
// that are always there.
func (m maker) fields(kind reflect.Type, inside []reflect.Type) (properties members, required []string) {
	all := m.collect(kind, inside, 0, false)
	for index, each := range all {
		if !isDominant(index, all) {
			continue
		}
		properties = append(properties, each.member)
		if each.isRequired {
			required = append(required, each.name)
		}
	}
	return properties, required
}

// isDominant says whether a field is the one of its name: the least deep, and of several of these the only one with a
// tag. Where that is none, encoding/json reads and writes none of them.
func isDominant(at int, all []found) bool {
	one := all[at]
	for index, other := range all {
		if index == at || other.name != one.name || other.depth > one.depth {
			continue
		}
		if other.depth < one.depth || other.isTagged || !one.isTagged {
			return false
		}
	}
	return true
}

// collect finds the fields, those of embedded structs in their place. In a result, what is embedded by a pointer may be
// missing as a whole.
func (m maker) collect(kind reflect.Type, inside []reflect.Type, depth int, mayMissAll bool) (all []found) {
	if slices.Contains(inside, kind) {
		panic(fmt.Sprintf("toolhold: %s contains itself, which a model cannot be told", kind))
	}
	inside = append(slices.Clone(inside), kind)
	for index := range kind.NumField() {
		field := kind.Field(index)
		tag := field.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		options := strings.Split(rest, ",")
		isPointer := field.Type.Kind() == reflect.Pointer
		plain := field.Type
		if isPointer {
			plain = plain.Elem()
		}
		if field.Anonymous && name == "" && plain.Kind() == reflect.Struct && !isWritten(plain) {
			all = append(all, m.collect(plain, inside, depth+1, mayMissAll || isPointer && !m.isArguments)...)
			continue
		}
		if !field.IsExported() {
			continue
		}
		isTagged := name != ""
		if name == "" {
			name = field.Name
		}
		mayMiss := slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero")
		if mayMiss {
			field.Type = plain // absent, and not null
		}
		made := m.schema(field.Type, inside)
		if slices.Contains(options, "string") {
			made = schema{"type": "string"}
			if isPointer && !mayMiss {
				made = orNull(made)
			}
		}
		describe(made, field)
		isRequired := !mayMiss && !mayMissAll && !(isPointer && m.isArguments)
		all = append(all, found{member{name, made}, depth, isTagged, isRequired})
	}
	return all
}

// isWritten says whether a type writes itself, and not its fields.
func isWritten(kind reflect.Type) bool {
	of := reflect.PointerTo(kind)
	return of.Implements(isMarshaler) || of.Implements(isTextMarshaler)
}

// describe adds what the field's tags say.
func describe(made schema, field reflect.StructField) {
	for _, key := range texts {
		if text, ok := field.Tag.Lookup(key); ok {
			made[key] = text
		}
	}
	for _, key := range numbers {
		if text, ok := field.Tag.Lookup(key); ok {
			number, err := strconv.ParseFloat(text, 64)
			if err != nil {
				panic(fmt.Sprintf("toolhold: the tag %s:%q of %s is not a number", key, text, field.Name))
			}
			made[key] = number
		}
	}
	if text, ok := field.Tag.Lookup("enum"); ok {
		of := made
		if items, ok := made["items"].(schema); ok {
			of = items // what may be in the list
		}
		of["enum"] = allowed(strings.Split(text, ","), of["type"])
	}
}

// allowed are the values of an enum: numbers where the type is one, and null where it may be.
func allowed(texts []string, kind any) []any {
	kinds, _ := kind.([]string)
	isText := kind == "string" || slices.Contains(kinds, "string")
	values := make([]any, 0, len(texts)+1)
	for _, text := range texts {
		if isText {
			values = append(values, text)
		} else {
			values = append(values, json.Number(text))
		}
	}
	if slices.Contains(kinds, "null") {
		values = append(values, nil)
	}
	return values
}
