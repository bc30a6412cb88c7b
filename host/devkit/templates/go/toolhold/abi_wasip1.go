package toolhold

// The canonical ABI of the world `tool-module`, written by hand: how wit/toolhold.wit's functions
// look to a core module. You need not touch it.
//
// DELICATE. The host calls cabiRealloc while it copies arguments in, when the component may call
// nothing outside itself; Go's allocator may start a collection, which asks for the time, which ends
// the instance. The WASI adapter calls it even before the runtime has started. So cabiRealloc takes
// nothing from Go's heap, needs no goroutine (nosplit) and no stack but the one that
// `toolhold build` sets up. The first memory it gives is static; what does not fit there comes from
// the end of Go's address space, which only the runtime's own function may move.

import (
	"fmt"
	"unsafe"
)

// A text or list as the ABI passes it: where it is, and how long. Go's own pointers have eight
// bytes here.
type slice struct {
	at     uint32
	length uint32
}

func sliceAt(start unsafe.Pointer, length int) slice {
	return slice{uint32(uintptr(start)), uint32(length)}
}

// What the host still has to read when an export has returned; without it the collector could have
// it first.
var kept []any

// Before the runtime has started the adapter takes two pages of 64 KiB.
var arena [256 << 10]byte

var (
	used uintptr // of the arena
	next uintptr // outside of it
	end  uintptr
)

//go:linkname sbrk runtime.sbrk
func sbrk(size uintptr) unsafe.Pointer

func trap()

//go:nosplit
//go:wasmexport cabi_realloc
func cabiRealloc(old unsafe.Pointer, oldSize, align, size uint32) unsafe.Pointer {
	at := allocate(uintptr(align), uintptr(size))
	if old != nil {
		for index := range uintptr(min(oldSize, size)) {
			*(*byte)(unsafe.Add(at, index)) = *(*byte)(unsafe.Add(old, index))
		}
	}
	return at
}

//go:nosplit
func allocate(align, size uintptr) unsafe.Pointer {
	base := unsafe.Pointer(&arena)
	offset := (uintptr(base)+used+align-1)&^(align-1) - uintptr(base)
	if offset+size <= uintptr(len(arena)) {
		used = offset + size
		return unsafe.Add(base, offset)
	}
	at := (next + align - 1) &^ (align - 1)
	if at+size > end {
		// In steps, since every step is a system call of sorts and most texts are small.
		step := (size + align + 1<<20 - 1) &^ (1<<20 - 1)
		fresh := uintptr(sbrk(step))
		if fresh == 0 {
			trap()
		}
		at = (fresh + align - 1) &^ (align - 1)
		end = fresh + step
	}
	next = at + size
	return unsafe.Pointer(at) // outside of Go's heap, so the collector leaves it alone
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
	return sliceAt(unsafe.Pointer(unsafe.StringData(value)), len(value))
}

func textIfAny(value string) optional {
	if value == "" {
		return optional{}
	}
	return optional{1, text(value)}
}

func list[T any](values []T) slice {
	kept = append(kept, values)
	return sliceAt(unsafe.Pointer(unsafe.SliceData(values)), len(values))
}

//go:wasmexport toolhold:module/tools@0.1.0#list-tools
func listTools() unsafe.Pointer {
	defer func() {
		if reason := recover(); reason != nil {
			// list-tools cannot fail; the host shows what was written last before the trap.
			println(fmt.Sprint(reason))
			trap()
		}
	}()
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
		input, output := tool.schemas()
		records = append(records, toolRecord{
			name:         text(tool.Name),
			title:        textIfAny(tool.Title),
			description:  text(tool.Description),
			inputSchema:  text(input),
			outputSchema: textIfAny(output),
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
