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
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toolhold"
)

// MostBytes of a response's body are read; a longer one is an error.
const MostBytes = 16 << 20

// MostAtOnce is how many requests of several goroutines are under way: fewer than the 8 that the host allows a call by
// default (`http_concurrent`). Others wait for their turn.
const MostAtOnce = 6

var turns = make(chan struct{}, MostAtOnce)

// Transport is an http.RoundTripper. A request to what was not granted is an error, and the host follows redirects
// as far as the grant says. The deadline of a request's context ends it, and so does its cancellation by another
// goroutine; a client's Timeout is such a deadline. The response is in memory when RoundTrip returns, so one that
// nobody closes holds nothing.
type Transport struct{}

func init() {
	http.DefaultTransport = Transport{}
	toolhold.Explain = timedOut
}

// What is written by the host, or here.
var notTheAuthors = []string{"Connection", "Content-Length", "Host", "Transfer-Encoding"}

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
			if !slices.Contains(notTheAuthors, http.CanonicalHeaderKey(name)) {
				fields = append(fields, field{strings.ToLower(name), value})
			}
		}
	}
	if body != nil {
		// Without it the body is sent in chunks, which some servers do not read.
		fields = append(fields, field{"content-length", strconv.Itoa(len(body))})
	}
	ctx := request.Context()
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	method := request.Method
	if method == "" {
		method = "GET"
	}
	url := request.URL.String()
	sent := outgoing{method, request.URL.Scheme, request.URL.Host, request.URL.RequestURI(), fields, body}
	received, err := sent.send(ctx, MostBytes)
	// Where its time is over, what the host says of the request follows from that.
	if ended := ctx.Err(); err != nil && ended != nil {
		return nil, ended
	}
	if err != nil {
		return nil, explained(method, request.URL.Scheme+"://"+request.URL.Host, url, err)
	}
	header := http.Header{}
	for _, found := range received.fields {
		header.Add(found.name, found.value)
	}
	status := received.status
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
	response.Body = io.NopCloser(bytes.NewReader(received.body))
	return response, nil
}

// timedOut explains a request whose time was over, as net/http tells it.
func timedOut(err error) *toolhold.Error {
	var of *url.Error
	if !errors.As(err, &of) || !of.Timeout() {
		return nil
	}
	return brokeOff(strings.ToUpper(of.Op), of.URL, of.Err.Error())
}

// brokeOff: the server had the request, or a part of it. Only some methods may be sent again (RFC 9110, 9.2.2).
func brokeOff(method, url, why string) *toolhold.Error {
	if slices.Contains([]string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}, method) {
		return toolhold.Retryable("%s %s broke off: %s", method, url, why)
	}
	return toolhold.Fatal("%s %s broke off: %s. The server may have carried it out: look before it is sent again",
		method, url, why)
}

// explained says what to make of an error, and whose move it is (docs/modules.md, "HTTP").
func explained(method, origin, url string, err error) error {
	if broken, ok := errors.AsType[brokenBody](err); ok {
		return brokeOff(method, url, string(broken))
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, errTooLong) {
		return toolhold.Fatal("the body of %s has more than the %d MiB that a module reads", url, MostBytes>>20)
	}
	if errors.Is(err, errNothing) {
		return toolhold.Fatal("%s %s: %v", method, url, err)
	}
	failed, ok := errors.AsType[failure](err)
	if !ok {
		return toolhold.Correctable("%s %s: %v", method, url, err)
	}
	switch name := failed.Error(); name {
	case "HTTP-request-denied":
		return toolhold.Fatal("%s %s was not granted to this module, or redirects to what was not; an operator can: "+
			"toolhold modules grant MODULE --with-http %s (toolhold modules call names what was refused)", method, url,
			origin)
	case "destination-IP-prohibited":
		return toolhold.Fatal("%s is on a private network, or redirects to one, which the grant does not include; an "+
			"operator can: toolhold modules grant MODULE --with-http %s --private", url, origin)
	case "loop-detected":
		return toolhold.Correctable("%s redirects more often than the grant allows; ask for the address that it "+
			"leads to", url)
	case "connection-limit-reached":
		return toolhold.Fatal("%s %s was not sent: this call reached its limit of requests (`http_requests`) or of "+
			"requests at once (`http_concurrent`)", method, url)
	case "HTTP-request-body-size":
		return toolhold.Fatal("%s %s was not sent: its body is more than this call may send (`http_request_bytes`), or "+
			"has another length than its header says", method, url)
	case "HTTP-response-body-size":
		return toolhold.Fatal("what %s answered is more than this call may receive (`http_response_bytes`)", url)
	case "DNS-error", "destination-not-found", "HTTP-request-URI-invalid", "HTTP-request-URI-too-long",
		"HTTP-request-method-invalid":
		return toolhold.Correctable("%s cannot be reached: %s", url, name)
	case "DNS-timeout", "destination-unavailable", "connection-refused", "connection-timeout":
		return toolhold.Retryable("%s did not answer: %s", url, name)
	case "connection-terminated", "connection-read-timeout", "connection-write-timeout", "HTTP-response-incomplete",
		"HTTP-response-timeout":
		return brokeOff(method, url, name)
	default:
		if failed.said != "" {
			name = failed.said
		}
		return toolhold.Fatal("%s %s failed: %s", method, url, name)
	}
}
