// Package toolhold writes a Toolhold tool module in Go: tools with a description and a function
// from an arguments struct to a result, both JSON by their struct tags.
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
	"strings"
)

// Annotations say what a tool does to the world; the host asks for approval by them.
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
	// InputSchema and OutputSchema are JSON Schemas as JSON text; the output's may be empty.
	InputSchema, OutputSchema string
	Annotations               Annotations
	Examples                  []Example
	// Run is made by Func.
	Run func(arguments []byte) (any, error)
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
func Func[A, O any](run func(A) (O, error)) func([]byte) (any, error) {
	return func(text []byte) (any, error) {
		var arguments A
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&arguments); err != nil {
			return nil, Correctable("the arguments do not fit: %v", err)
		}
		return run(arguments)
	}
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

// call runs one tool: the result as JSON text, or why there is none. An error that is not an Error
// is fatal, and so is a panic.
func call(name string, arguments []byte) (output string, failure *Error) {
	defer func() {
		if reason := recover(); reason != nil {
			output, failure = "", Fatal("%s panicked: %v", name, reason)
		}
	}()
	for _, tool := range exported {
		if tool.Name != name {
			continue
		}
		value, err := tool.Run(arguments)
		if err != nil {
			var typed *Error
			if !errors.As(err, &typed) {
				typed = Fatal("%v", err)
			}
			return "", typed
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
