package web

// The functions of wasi:http and wasi:io that a request takes, as the canonical ABI has them. Addresses have four
// bytes there and Go's eight, so records hold addresses as uint32.

import (
	"context"
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

func (o *outcome) failure() failure { return failureOf(&o.value) }

// option<error-code>
type maybeFailure struct {
	isSome uint64
	value  [32]byte
}

// failureOf reads an error-code. Only an internal-error's own words are kept: an option<string> behind the case.
func failureOf(value *[32]byte) failure {
	found := failure{code: errorCode(value[0])}
	if found.code.Error() == "internal-error" && value[8] != 0 {
		found.said = string((*slice)(unsafe.Pointer(&value[12])).bytes())
	}
	return found
}

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

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]outgoing-request
func requestDrop(self handle)

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

//go:wasmimport wasi:http/types@0.2.12 [method]request-options.set-first-byte-timeout
func optionsSetFirstByte(self handle, isSome int32, nanoseconds uint64) int32

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]request-options
func optionsDrop(self handle)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]outgoing-body
func outgoingBodyDrop(self handle)

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

//go:wasmimport wasi:http/types@0.2.12 http-error-code
//go:noescape
func httpErrorCode(err handle, result unsafe.Pointer)

//go:wasmimport wasi:clocks/monotonic-clock@0.2.12 subscribe-duration
func subscribeDuration(nanoseconds uint64) handle

//go:wasmimport wasi:io/poll@0.2.12 poll
//go:noescape
func poll(pollables unsafe.Pointer, count uint32, result unsafe.Pointer)

//go:wasmimport wasi:io/poll@0.2.12 [method]pollable.ready
func pollableReady(self handle) int32

//go:wasmimport wasi:io/poll@0.2.12 [resource-drop]pollable
func pollableDrop(self handle)

//go:wasmimport wasi:io/error@0.2.12 [method]error.to-debug-string
//go:noescape
func errorText(self handle, result unsafe.Pointer)

//go:wasmimport wasi:io/error@0.2.12 [resource-drop]error
func errorDrop(self handle)

//go:wasmimport wasi:io/streams@0.2.12 [method]output-stream.blocking-write-and-flush
//go:noescape
func outputWrite(self handle, bytes unsafe.Pointer, length uint32, result unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [resource-drop]output-stream
func outputDrop(self handle)

//go:wasmimport wasi:io/streams@0.2.12 [method]input-stream.subscribe
func inputSubscribe(self handle) handle

//go:wasmimport wasi:io/streams@0.2.12 [method]input-stream.read
//go:noescape
func inputRead(self handle, length uint64, result unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [resource-drop]input-stream
func inputDrop(self handle)

const (
	// Bytes of a body that are read at a time, and the most that the host takes at a time.
	readSize  = 64 << 10
	writeSize = 4096
	// Longest that a request waits for the host before other goroutines run, one of which may cancel it.
	pause = 10 * time.Millisecond
	// How much later than the module the host ends a request, so that the module's own words come first.
	hostSlack = 50 * time.Millisecond
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

// failure is an error-code of the host, with the words of an internal error.
type failure struct {
	code errorCode
	said string
}

func (f failure) Error() string { return f.code.Error() }

// brokenBody is what ended a body, where the host has no code for it.
type brokenBody string

func (b brokenBody) Error() string { return string(b) }

// held is what a request holds of the host, which counts it as open until the last of these handles is gone.
type held []owned

type owned struct {
	handle handle
	drop   func(handle)
}

func (h *held) own(handle handle, drop func(handle)) handle {
	*h = append(*h, owned{handle, drop})
	return handle
}

// gave forgets a handle that the host has taken back.
func (h *held) gave(handle handle) {
	for index := range *h {
		if (*h)[index].handle == handle {
			*h = append((*h)[:index], (*h)[index+1:]...)
			return
		}
	}
}

// drop drops what is left, what belongs to something else before it.
func (h *held) drop() {
	for index := len(*h) - 1; index >= 0; index-- {
		(*h)[index].drop((*h)[index].handle)
	}
	*h = nil
}

// wait waits until a pollable is ready or the context is over. In between, other goroutines run.
func wait(ctx context.Context, ready handle) error {
	for {
		if pollableReady(ready) != 0 {
			return nil
		}
		left := pause
		if deadline, ok := ctx.Deadline(); ok {
			left = min(left, time.Until(deadline))
		}
		if left <= 0 {
			return context.DeadlineExceeded
		}
		timer := subscribeDuration(uint64(left))
		both := [2]handle{ready, timer}
		var list slice
		poll(unsafe.Pointer(&both), uint32(len(both)), unsafe.Pointer(&list))
		pollableDrop(timer)
		runtime.Gosched()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// outgoing is a request as the host takes it.
type outgoing struct {
	method, scheme, authority, path string
	fields                          []field
	body                            []byte // nil: none
}

// response is what came of it, whole.
type response struct {
	status int
	fields []field
	body   []byte
}

// send sends a request and reads the response, of whose body most bytes are taken. However it ends, it holds nothing of
// the host then.
func (o *outgoing) send(ctx context.Context, most int) (response, error) {
	var held held
	defer held.drop()
	future, err := o.start(ctx, &held)
	if err != nil {
		return response{}, err
	}
	answered := held.own(futureSubscribe(future), pollableDrop)
	if err := wait(ctx, answered); err != nil {
		return response{}, err
	}
	var answer answer
	futureGet(future, unsafe.Pointer(&answer))
	if answer.isSome&1 == 0 || answer.failed&1 != 0 {
		return response{}, errNothing
	}
	if answer.outcome.failed&1 != 0 {
		return response{}, answer.outcome.failure()
	}
	incoming := held.own(answer.outcome.handle(), responseDrop)
	received := response{status: int(responseStatus(incoming)), fields: fieldsOf(incoming)}
	received.body, err = read(ctx, incoming, most, &held)
	return received, err
}

// start sends the request, and its body.
func (o *outgoing) start(ctx context.Context, held *held) (handle, error) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	text := func(value string) slice { return sliceOf([]byte(value), &pinner) }

	records := make([]fieldRecord, 0, len(o.fields))
	for _, field := range o.fields {
		records = append(records, fieldRecord{text(field.name), text(field.value)})
	}
	list := sliceOf(records, &pinner)
	var headers made
	fieldsFromList(unsafe.Pointer(uintptr(list.at)), list.length, unsafe.Pointer(&headers))
	if headers.failed&1 != 0 {
		return 0, errHeader
	}
	request := held.own(requestNew(headers.value), requestDrop)
	kind, name := int32(len(methods)), text(o.method)
	for index, known := range methods {
		if known == o.method {
			kind, name = int32(index), slice{}
		}
	}
	schemeKind := int32(0)
	switch o.scheme {
	case "http":
	case "https":
		schemeKind = 1
	default:
		return 0, errUnsendable
	}
	host, target := text(o.authority), text(o.path)
	at := func(s slice) unsafe.Pointer { return unsafe.Pointer(uintptr(s.at)) }
	if requestSetMethod(request, kind, at(name), name.length) != 0 ||
		requestSetScheme(request, 1, schemeKind, nil, 0) != 0 ||
		requestSetAuthority(request, 1, at(host), host.length) != 0 ||
		requestSetPath(request, 1, at(target), target.length) != 0 {
		return 0, errUnsendable
	}
	out := made{failed: 1}
	if o.body != nil {
		requestBody(request, unsafe.Pointer(&out))
		if out.failed&1 == 0 {
			held.own(out.value, outgoingBodyDrop)
		}
	}
	hasOptions, options := int32(0), handle(0)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			return 0, context.DeadlineExceeded
		}
		// While it sends a body, the module waits for nothing but the host.
		hasOptions, options = 1, optionsNew()
		optionsSetFirstByte(options, 1, uint64(left+hostSlack))
	}
	var sent outcome
	handleRequest(request, hasOptions, options, unsafe.Pointer(&sent))
	held.gave(request)
	if sent.failed&1 != 0 {
		return 0, sent.failure()
	}
	future := held.own(sent.handle(), futureDrop)
	if out.failed&1 == 0 {
		write(out.value, o.body, held)
	}
	return future, nil
}

// write sends a body. Why it was refused comes in the response's place.
func write(body handle, bytes []byte, held *held) {
	var stream made
	outgoingBodyWrite(body, unsafe.Pointer(&stream))
	if stream.failed&1 != 0 {
		return
	}
	held.own(stream.value, outputDrop)
	for len(bytes) > 0 {
		part := bytes[:min(len(bytes), writeSize)]
		var written stopped
		outputWrite(stream.value, unsafe.Pointer(&part[0]), uint32(len(part)), unsafe.Pointer(&written))
		if written.failed != 0 {
			if written.closed == 0 {
				errorDrop(written.err)
			}
			return
		}
		bytes = bytes[len(part):]
	}
	outputDrop(stream.value)
	held.gave(stream.value)
	var finished outcome
	outgoingBodyFinish(body, 0, 0, unsafe.Pointer(&finished))
	held.gave(body)
}

func fieldsOf(incoming handle) []field {
	headers := responseHeaders(incoming)
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

// read takes the whole body.
func read(ctx context.Context, incoming handle, most int, held *held) ([]byte, error) {
	var body, stream made
	responseConsume(incoming, unsafe.Pointer(&body))
	if body.failed&1 != 0 {
		return nil, errNothing
	}
	held.own(body.value, incomingBodyDrop)
	incomingBodyStream(body.value, unsafe.Pointer(&stream))
	if stream.failed&1 != 0 {
		return nil, errNothing
	}
	held.own(stream.value, inputDrop)
	readable := held.own(inputSubscribe(stream.value), pollableDrop)
	var read []byte
	for {
		if err := wait(ctx, readable); err != nil {
			return nil, err
		}
		var next chunk
		inputRead(stream.value, readSize, unsafe.Pointer(&next))
		if next.failed != 0 {
			stop := (*stopped)(unsafe.Pointer(&next))
			if stop.closed != 0 {
				return read, nil
			}
			return nil, bodyFailure(stop.err)
		}
		read = append(read, next.slice.bytes()...)
		if len(read) > most {
			return nil, errTooLong
		}
	}
}

// bodyFailure is what ended a body before its end.
func bodyFailure(err handle) error {
	defer errorDrop(err)
	var code maybeFailure
	httpErrorCode(err, unsafe.Pointer(&code))
	if code.isSome&1 != 0 {
		return failureOf(&code.value)
	}
	var why slice
	errorText(err, unsafe.Pointer(&why))
	return brokenBody(why.bytes())
}
