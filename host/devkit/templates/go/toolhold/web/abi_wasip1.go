package web

// The functions of wasi:http and wasi:io that a request takes, as the canonical ABI has them. Addresses have four
// bytes there and Go's eight, so records hold addresses as uint32.

import (
	"errors"
	"runtime"
	"time"
	"unsafe"
)

type handle = int32

type slice struct {
	at     uint32
	length uint32
}

// What the host reads must not be collected before it has.
func sliceOf[T any](values []T, pinner *runtime.Pinner) slice {
	if len(values) == 0 {
		return slice{}
	}
	pinner.Pin(&values[0])
	return slice{uint32(uintptr(unsafe.Pointer(&values[0]))), uint32(len(values))}
}

// bytes copies what the host wrote.
func (s slice) bytes() []byte {
	if s.length == 0 {
		return nil
	}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(uintptr(s.at))), s.length)...)
}

type field struct{ name, value string }

type fieldRecord struct{ name, value slice }

// A result with a handle, or a small error.
type made struct {
	failed uint32
	value  handle
}

// option<result<result<own<incoming-response>, error-code>>>, and the parts of it. The words are as in memory: an
// error-code has 32 bytes that begin at a multiple of eight.
type outcome struct {
	failed uint64
	value  [32]byte
}

type answer struct {
	isSome uint64
	failed uint64
	outcome
}

func (o *outcome) handle() handle { return *(*handle)(unsafe.Pointer(&o.value)) }

func (o *outcome) code() errorCode { return errorCode(o.value[0]) }

// result<list<u8>, stream-error> and result<_, stream-error>
type chunk struct {
	failed byte
	_      [3]byte
	slice  slice // or the error: whether it is the end, and the error's handle
}

type stopped struct {
	failed byte
	_      [3]byte
	closed byte
	_      [3]byte
	err    handle
}

//go:wasmimport wasi:http/types@0.2.12 [static]fields.from-list
//go:noescape
func fieldsFromList(fields unsafe.Pointer, count uint32, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]fields.entries
//go:noescape
func fieldsEntries(self handle, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]fields
func fieldsDrop(self handle)

//go:wasmimport wasi:http/types@0.2.12 [constructor]outgoing-request
func requestNew(headers handle) handle

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.body
//go:noescape
func requestBody(self handle, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-method
//go:noescape
func requestSetMethod(self handle, kind int32, text unsafe.Pointer, length uint32) int32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-path-with-query
//go:noescape
func requestSetPath(self handle, isSome int32, text unsafe.Pointer, length uint32) int32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-scheme
//go:noescape
func requestSetScheme(self handle, isSome, kind int32, text unsafe.Pointer, length uint32) int32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-authority
//go:noescape
func requestSetAuthority(self handle, isSome int32, text unsafe.Pointer, length uint32) int32

//go:wasmimport wasi:http/types@0.2.12 [constructor]request-options
func optionsNew() handle

//go:wasmimport wasi:http/types@0.2.12 [method]request-options.set-connect-timeout
func optionsSetConnect(self handle, isSome int32, nanoseconds uint64) int32

//go:wasmimport wasi:http/types@0.2.12 [method]request-options.set-first-byte-timeout
func optionsSetFirstByte(self handle, isSome int32, nanoseconds uint64) int32

//go:wasmimport wasi:http/types@0.2.12 [method]request-options.set-between-bytes-timeout
func optionsSetBetweenBytes(self handle, isSome int32, nanoseconds uint64) int32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-body.write
//go:noescape
func outgoingBodyWrite(self handle, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [static]outgoing-body.finish
//go:noescape
func outgoingBodyFinish(self handle, hasTrailers int32, trailers handle, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]future-incoming-response.subscribe
func futureSubscribe(self handle) handle

//go:wasmimport wasi:http/types@0.2.12 [method]future-incoming-response.get
//go:noescape
func futureGet(self handle, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]future-incoming-response
func futureDrop(self handle)

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-response.status
func responseStatus(self handle) int32

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-response.headers
func responseHeaders(self handle) handle

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-response.consume
//go:noescape
func responseConsume(self handle, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]incoming-response
func responseDrop(self handle)

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-body.stream
//go:noescape
func incomingBodyStream(self handle, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]incoming-body
func incomingBodyDrop(self handle)

//go:wasmimport wasi:http/outgoing-handler@0.2.12 handle
//go:noescape
func handleRequest(request handle, hasOptions int32, options handle, result unsafe.Pointer)

//go:wasmimport wasi:io/poll@0.2.12 [method]pollable.block
func pollableBlock(self handle)

//go:wasmimport wasi:io/poll@0.2.12 [resource-drop]pollable
func pollableDrop(self handle)

//go:wasmimport wasi:io/error@0.2.12 [method]error.to-debug-string
//go:noescape
func errorText(self handle, result unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [method]output-stream.blocking-write-and-flush
//go:noescape
func outputWrite(self handle, bytes unsafe.Pointer, length uint32, result unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [resource-drop]output-stream
func outputDrop(self handle)

//go:wasmimport wasi:io/streams@0.2.12 [method]input-stream.blocking-read
//go:noescape
func inputRead(self handle, length uint64, result unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [resource-drop]input-stream
func inputDrop(self handle)

// Bytes of a body that are read at a time, and the most that the host takes at a time.
const (
	readSize  = 64 << 10
	writeSize = 4096
)

var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// errorCode is wasi:http's error-code, by the order of its cases.
type errorCode uint8

var errorNames = []string{
	"DNS-timeout", "DNS-error", "destination-not-found", "destination-unavailable", "destination-IP-prohibited",
	"destination-IP-unroutable", "connection-refused", "connection-terminated", "connection-timeout",
	"connection-read-timeout", "connection-write-timeout", "connection-limit-reached", "TLS-protocol-error",
	"TLS-certificate-error", "TLS-alert-received", "HTTP-request-denied", "HTTP-request-length-required",
	"HTTP-request-body-size", "HTTP-request-method-invalid", "HTTP-request-URI-invalid", "HTTP-request-URI-too-long",
	"HTTP-request-header-section-size", "HTTP-request-header-size", "HTTP-request-trailer-section-size",
	"HTTP-request-trailer-size", "HTTP-response-incomplete", "HTTP-response-header-section-size",
	"HTTP-response-header-size", "HTTP-response-body-size", "HTTP-response-trailer-section-size",
	"HTTP-response-trailer-size", "HTTP-response-transfer-coding", "HTTP-response-content-coding",
	"HTTP-response-timeout", "HTTP-upgrade-failed", "HTTP-protocol-error", "loop-detected", "configuration-error",
	"internal-error",
}

func (e errorCode) Error() string {
	if int(e) < len(errorNames) {
		return errorNames[e]
	}
	return "unknown error"
}

var (
	errUnsendable = errors.New("it is no request that can be sent: write an absolute URL with https://")
	errHeader     = errors.New("a header cannot be sent")
	errNothing    = errors.New("the host gave no response")
	errTooLong    = errors.New("the body is too long")
)

// send is one request to the head of its response; a timeout of 0 is none.
func send(
	method, scheme, authority, path string, fields []field, body []byte, timeout time.Duration,
) (response, error) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	text := func(value string) slice { return sliceOf([]byte(value), &pinner) }

	records := make([]fieldRecord, 0, len(fields))
	for _, field := range fields {
		records = append(records, fieldRecord{text(field.name), text(field.value)})
	}
	list := sliceOf(records, &pinner)
	var headers made
	fieldsFromList(unsafe.Pointer(uintptr(list.at)), list.length, unsafe.Pointer(&headers))
	if headers.failed&1 != 0 {
		return 0, errHeader
	}
	request := requestNew(headers.value)
	kind, name := int32(len(methods)), text(method)
	for index, known := range methods {
		if known == method {
			kind, name = int32(index), slice{}
		}
	}
	schemeKind := int32(0)
	switch scheme {
	case "http":
	case "https":
		schemeKind = 1
	default:
		return 0, errUnsendable
	}
	host, target := text(authority), text(path)
	at := func(s slice) unsafe.Pointer { return unsafe.Pointer(uintptr(s.at)) }
	if requestSetMethod(request, kind, at(name), name.length) != 0 ||
		requestSetScheme(request, 1, schemeKind, nil, 0) != 0 ||
		requestSetAuthority(request, 1, at(host), host.length) != 0 ||
		requestSetPath(request, 1, at(target), target.length) != 0 {
		return 0, errUnsendable
	}
	out := made{failed: 1}
	if body != nil {
		requestBody(request, unsafe.Pointer(&out))
	}
	hasOptions, options := int32(0), handle(0)
	if timeout > 0 {
		hasOptions, options = 1, optionsNew()
		optionsSetConnect(options, 1, uint64(timeout))
		optionsSetFirstByte(options, 1, uint64(timeout))
		optionsSetBetweenBytes(options, 1, uint64(timeout))
	}
	var sent outcome
	handleRequest(request, hasOptions, options, unsafe.Pointer(&sent))
	if sent.failed&1 != 0 {
		return 0, sent.code()
	}
	if out.failed&1 == 0 {
		write(out.value, body)
	}
	future := sent.handle()
	ready := futureSubscribe(future)
	pollableBlock(ready)
	pollableDrop(ready)
	var answer answer
	futureGet(future, unsafe.Pointer(&answer))
	futureDrop(future)
	if answer.isSome&1 == 0 || answer.failed&1 != 0 {
		return 0, errNothing
	}
	if answer.outcome.failed&1 != 0 {
		return 0, answer.code()
	}
	return response(answer.handle()), nil
}

// write sends a body. Why it was refused comes in the response's place.
func write(body handle, bytes []byte) {
	var stream made
	outgoingBodyWrite(body, unsafe.Pointer(&stream))
	if stream.failed&1 != 0 {
		return
	}
	for len(bytes) > 0 {
		part := bytes[:min(len(bytes), writeSize)]
		var written stopped
		outputWrite(stream.value, unsafe.Pointer(&part[0]), uint32(len(part)), unsafe.Pointer(&written))
		if written.failed != 0 {
			return
		}
		bytes = bytes[len(part):]
	}
	outputDrop(stream.value)
	var finished outcome
	outgoingBodyFinish(body, 0, 0, unsafe.Pointer(&finished))
}

// response is an incoming-response that was not read.
type response handle

func (r response) status() int { return int(responseStatus(handle(r))) }

func (r response) fields() []field {
	headers := responseHeaders(handle(r))
	var list slice
	fieldsEntries(headers, unsafe.Pointer(&list))
	fieldsDrop(headers)
	if list.length == 0 {
		return nil
	}
	records := unsafe.Slice((*fieldRecord)(unsafe.Pointer(uintptr(list.at))), list.length)
	fields := make([]field, 0, len(records))
	for _, record := range records {
		fields = append(fields, field{string(record.name.bytes()), string(record.value.bytes())})
	}
	return fields
}

// read takes the whole body, and the response with it.
func (r response) read(most int) ([]byte, error) {
	var body, stream made
	responseConsume(handle(r), unsafe.Pointer(&body))
	if body.failed&1 != 0 {
		return nil, errNothing
	}
	incomingBodyStream(body.value, unsafe.Pointer(&stream))
	if stream.failed&1 != 0 {
		return nil, errNothing
	}
	var read []byte
	for {
		var next chunk
		inputRead(stream.value, readSize, unsafe.Pointer(&next))
		if next.failed != 0 {
			stop := (*stopped)(unsafe.Pointer(&next))
			if stop.closed != 0 {
				break
			}
			var why slice
			errorText(stop.err, unsafe.Pointer(&why))
			return nil, errors.New(string(why.bytes()))
		}
		read = append(read, next.slice.bytes()...)
		if len(read) > most {
			return nil, errTooLong
		}
	}
	inputDrop(stream.value)
	incomingBodyDrop(body.value)
	responseDrop(handle(r))
	return read, nil
}
