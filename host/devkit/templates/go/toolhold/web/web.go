// Package web sends net/http's requests over wasi:http, to the origins that the module was granted:
//
//	import _ "toolhold/web"
//
// Then http.Get, http.DefaultClient and every client without a transport of its own use it.
package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolhold"
)

// MostBytes of a response's body are read; a longer one is an error.
const MostBytes = 16 << 20

// Transport is an http.RoundTripper. A request to what was not granted is an error, and the host follows redirects
// as far as the grant says. It ends a request by the deadline of its context, and not when that is cancelled.
type Transport struct{}

func init() {
	http.DefaultTransport = Transport{}
}

// What the host writes itself.
var ofTheHost = []string{"Connection", "Host", "Transfer-Encoding"}

// RoundTrip implements http.RoundTripper.
func (Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil && request.Body != http.NoBody {
		read, err := io.ReadAll(request.Body)
		request.Body.Close()
		if err != nil {
			return nil, err
		}
		body = read
	}
	var fields []field
	for name, values := range request.Header {
		for _, value := range values {
			if !slices.Contains(ofTheHost, http.CanonicalHeaderKey(name)) {
				fields = append(fields, field{strings.ToLower(name), value})
			}
		}
	}
	if body != nil {
		// Without it the body is sent in chunks, which some servers do not read.
		fields = append(fields, field{"content-length", strconv.Itoa(len(body))})
	}
	timeout := time.Duration(0)
	if deadline, ok := request.Context().Deadline(); ok {
		if timeout = time.Until(deadline); timeout <= 0 {
			return nil, context.DeadlineExceeded
		}
	}
	method := request.Method
	if method == "" {
		method = "GET"
	}
	incoming, err := send(method, request.URL.Scheme, request.URL.Host, request.URL.RequestURI(), fields, body, timeout)
	if err != nil {
		return nil, explained(method, request.URL.Scheme+"://"+request.URL.Host, request.URL.String(), err)
	}
	header := http.Header{}
	for _, found := range incoming.fields() {
		header.Add(found.name, found.value)
	}
	status := incoming.status()
	response := &http.Response{
		Status:        fmt.Sprintf("%d %s", status, http.StatusText(status)),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		ContentLength: -1,
		Request:       request,
	}
	if length, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64); err == nil {
		response.ContentLength = length
	}
	// Read here: what the host gives is the module's while the request lasts, and a caller may forget to close.
	read, err := incoming.read(MostBytes)
	if errors.Is(err, errTooLong) {
		return nil, toolhold.Fatal("the body of %s has more than the %d MiB that a module reads", request.URL, MostBytes>>20)
	}
	if err != nil {
		return nil, brokeOff(method, request.URL.String(), err.Error())
	}
	response.Body = io.NopCloser(bytes.NewReader(read))
	return response, nil
}

// brokeOff: the server had the request, or a part of it. Only some methods may be sent again (RFC 9110, 9.2.2).
func brokeOff(method, url, why string) error {
	if slices.Contains([]string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}, method) {
		return toolhold.Retryable("%s %s broke off: %s", method, url, why)
	}
	return toolhold.Fatal("%s %s broke off: %s. The server may have carried it out: look before it is sent again",
		method, url, why)
}

// explained says what to make of an error, and whose move it is.
func explained(method, origin, url string, err error) error {
	code, ok := errors.AsType[errorCode](err)
	if !ok {
		return toolhold.Correctable("%s %s: %v", method, url, err)
	}
	switch name := code.Error(); name {
	case "HTTP-request-denied":
		return toolhold.Fatal("%s %s was not granted to this module; an operator can: toolhold modules grant MODULE "+
			"--with-http %s", method, url, origin)
	case "destination-IP-prohibited":
		return toolhold.Fatal("%s is on a private network, which the grant does not include", url)
	case "loop-detected":
		return toolhold.Correctable("%s redirects more often than the grant allows; ask for the address that it "+
			"leads to", url)
	case "DNS-error", "destination-not-found", "HTTP-request-URI-invalid", "HTTP-request-URI-too-long",
		"HTTP-request-method-invalid":
		return toolhold.Correctable("%s cannot be reached: %s", url, name)
	case "DNS-timeout", "destination-unavailable", "connection-refused", "connection-timeout",
		"connection-limit-reached":
		return toolhold.Retryable("%s did not answer: %s", url, name)
	case "connection-terminated", "connection-read-timeout", "connection-write-timeout", "HTTP-response-incomplete",
		"HTTP-response-timeout":
		return brokeOff(method, url, name)
	default:
		return toolhold.Fatal("%s %s failed: %s", method, url, name)
	}
}
