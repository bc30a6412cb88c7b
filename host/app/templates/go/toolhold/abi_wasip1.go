package toolhold

// The canonical ABI of the world `tool-module`, written by hand: how wit/toolhold.wit's functions
// look to a core module. You need not touch it.
//
// DELICATE. While the host copies arguments in, it calls cabiRealloc and the component may call
// nothing outside itself. Go's allocator may start a collection, which asks for the time, which
// ends the instance. So cabiRealloc allocates nothing from Go's heap.

import "unsafe"

// A text or list as the ABI passes it: where it is, and how long.
type slice struct {
	at     unsafe.Pointer
	length uint32
}

// What the host still has to read when an export has returned; without it the collector could have
// it first.
var kept []any

const pageSize = 65536

var free, end uintptr

func growMemory(pages int32) int32

//go:wasmexport cabi_realloc
func cabiRealloc(old unsafe.Pointer, oldSize, align, size uint32) unsafe.Pointer {
	at := (free + uintptr(align) - 1) &^ (uintptr(align) - 1)
	if at+uintptr(size) > end {
		pages := (uintptr(size) + uintptr(align) + pageSize - 1) / pageSize
		before := growMemory(int32(pages))
		if before < 0 {
			panic("no memory for the arguments")
		}
		// Fresh pages begin at a multiple of every alignment.
		at = uintptr(before) * pageSize
		end = at + pages*pageSize
	}
	free = at + uintptr(size)
	//nolint:govet // an address outside Go's heap, which the collector ignores
	grown := unsafe.Pointer(at)
	if old != nil {
		copy(unsafe.Slice((*byte)(grown), size), unsafe.Slice((*byte)(old), min(oldSize, size)))
	}
	return grown
}

// Types are records of words; the smaller fields are little-endian and so is a word.
type (
	optional struct {
		some  uint32
		value slice
	}
	exampleRecord struct {
		task, arguments, output, answer slice
	}
	toolRecord struct {
		name         slice
		title        optional
		description  slice
		inputSchema  slice
		outputSchema optional
		annotations  uint32
		examples     slice
	}
	// result<output, tool-error>: the case, the payload's own case or class, its text, and what is
	// an error's data, which is never there.
	resultRecord struct {
		failed uint32
		kind   uint32
		text   slice
		data   optional
	}
)

func text(value string) slice {
	kept = append(kept, value)
	return slice{unsafe.Pointer(unsafe.StringData(value)), uint32(len(value))}
}

func textIfAny(value string) optional {
	if value == "" {
		return optional{}
	}
	return optional{1, text(value)}
}

func list[T any](values []T) slice {
	kept = append(kept, values)
	return slice{unsafe.Pointer(unsafe.SliceData(values)), uint32(len(values))}
}

//go:wasmexport toolhold:module/tools@0.1.0#list-tools
func listTools() unsafe.Pointer {
	records := make([]toolRecord, 0, len(exported))
	for _, tool := range exported {
		examples := make([]exampleRecord, 0, len(tool.Examples))
		for _, example := range tool.Examples {
			examples = append(examples, exampleRecord{
				task:      text(example.Task),
				arguments: text(example.Arguments),
				output:    text(example.Output),
				answer:    text(example.Answer),
			})
		}
		records = append(records, toolRecord{
			name:         text(tool.Name),
			title:        textIfAny(tool.Title),
			description:  text(tool.Description),
			inputSchema:  text(tool.InputSchema),
			outputSchema: textIfAny(tool.OutputSchema),
			annotations:  uint32(tool.Annotations),
			examples:     list(examples),
		})
	}
	tools := []slice{list(records)}
	kept = append(kept, tools)
	return unsafe.Pointer(&tools[0])
}

//go:wasmexport toolhold:module/tools@0.1.0#call
func exportedCall(
	_ unsafe.Pointer, _ uint32, // id
	name unsafe.Pointer, nameLength uint32,
	arguments unsafe.Pointer, argumentsLength uint32,
	_ unsafe.Pointer, _ uint32, // context
) unsafe.Pointer {
	output, failure := call(
		unsafe.String((*byte)(name), nameLength),
		unsafe.Slice((*byte)(arguments), argumentsLength),
	)
	result := &resultRecord{text: text(output)}
	if failure != nil {
		result = &resultRecord{failed: 1, kind: uint32(failure.class), text: text(failure.message)}
	}
	kept = append(kept, result)
	return unsafe.Pointer(result)
}
