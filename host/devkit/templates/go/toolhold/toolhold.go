// Package toolhold writes a Toolhold tool module in Go: tools with a description and a function
// from an arguments struct to a result, both JSON by their struct tags. The schemas come from the
// same tags (schema.go).
//
//	func init() {
//		toolhold.Export(toolhold.Tool{Name: "double", Run: toolhold.Func(double), …})
//	}
//
//	func main() {} // a module is a library; main never runs
//
// Every call is a fresh instance: nothing that a call leaves in a variable is there for the next.
// What is exported here has the meaning that wit/toolhold.wit gives it.
package toolhold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
)

// Annotations say what a tool does to the world; by them the host decides whether to ask a person.
type Annotations uint8

const (
	ReadOnly    Annotations = 1 << iota // changes nothing outside the call
	Idempotent                          // calling twice has the effect of calling once
	Destructive                         // may overwrite what it did not create
	OpenWorld                           // reaches beyond the host
)

// Tool is one tool of a module.
type Tool struct {
	Name  string
	Title string
	// Description is what the model chooses by: what the tool does, when to use it, what it returns.
	Description string
	// InputSchema and OutputSchema are JSON Schemas as JSON text. Left empty, they are made from
	// the types of Run.
	InputSchema, OutputSchema string
	Annotations               Annotations
	Examples                  []Example
	// Run is made by Func.
	Run Function
}

// Function is what a tool runs, with the types of its arguments and of its result.
type Function struct {
	run               func(arguments []byte) (any, error)
	arguments, result reflect.Type
}

// Example is a worked example; small models choose and fill tools by imitation.
type Example struct {
	Task string
	// Arguments and Output are JSON text.
	Arguments, Output string
	Answer            string
}

// Func makes the Run of a tool from a function over types that encoding/json knows. Arguments
// that the type has no field for are an error.
func Func[A, O any](run func(A) (O, error)) Function {
	decoded := func(text []byte) (any, error) {
		var arguments A
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&arguments); err != nil {
			return nil, Correctable("the arguments do not fit: %v", err)
		}
		return run(arguments)
	}
	return Function{decoded, reflect.TypeFor[A](), reflect.TypeFor[O]()}
}

// schemas are the tool's own, or else those of its types. Only list-tools needs them.
func (t Tool) schemas() (input, output string) {
	input, output = t.InputSchema, t.OutputSchema
	if input == "" {
		input = schemaText(t.Run.arguments, true)
	}
	if output == "" {
		output = schemaText(t.Run.result, false)
	}
	return input, output
}

// Error is a tool's failure, in words for the model.
type Error struct {
	class   uint8
	message string
}

func (e *Error) Error() string { return e.message }

// Correctable is an error that the model can mend by changing the call: say how.
func Correctable(format string, arguments ...any) *Error {
	return &Error{0, fmt.Sprintf(format, arguments...)}
}

// Retryable is an error after which the same call may work later.
func Retryable(format string, arguments ...any) *Error {
	return &Error{1, fmt.Sprintf(format, arguments...)}
}

// Fatal is an error that only the operator can mend, by configuring or granting something.
func Fatal(format string, arguments ...any) *Error {
	return &Error{2, fmt.Sprintf(format, arguments...)}
}

var exported []Tool

// Export says what the module offers. Call it from init.
func Export(tools ...Tool) {
	exported = append(exported, tools...)
}

// Explain, where it is set, makes an Error of what a tool returned that is none; nil if it knows nothing of it.
// toolhold/web sets it, for requests whose time was over.
var Explain func(error) *Error

// asError is the Error among the causes of err, or one that is made of it.
func asError(err error) *Error {
	var typed *Error
	if errors.As(err, &typed) {
		return typed
	}
	if Explain != nil {
		if explained := Explain(err); explained != nil {
			return explained
		}
	}
	return Fatal("%v", err)
}

// call runs one tool: the result as JSON text, or why there is none. An error that is not an Error
// is fatal, and so is a panic, whose stack goes to stderr.
func call(name string, arguments []byte) (output string, failure *Error) {
	defer func() {
		if reason := recover(); reason != nil {
			os.Stderr.Write(debug.Stack())
			output, failure = "", Fatal("%s panicked: %v%s", name, reason, origin())
		}
	}()
	for _, tool := range exported {
		if tool.Name != name {
			continue
		}
		value, err := tool.Run.run(arguments)
		if err != nil {
			return "", asError(err)
		}
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return "", Fatal("%s made a result that is not JSON: %v", name, err)
		}
		return strings.TrimSuffix(text.String(), "\n"), nil
	}
	return "", Correctable("no tool `%s` here", name)
}

// origin is the place in the source at which a panic began: the first frame below the runtime's own.
func origin() string {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") && frame.File != "" {
			return fmt.Sprintf(" (%s:%d, in %s)", frame.File, frame.Line, frame.Function)
		}
		if !more {
			return ""
		}
	}
}
