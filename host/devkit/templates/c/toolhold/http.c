// A request over wasi:http. The functions are declared as the canonical ABI has them.
#include "http.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Bytes of a body that are read at a time, and the most that the host takes at a time.
#define READ 65536
#define WRITE 4096

typedef int32_t handle;
typedef struct {
  const char *text;
  size_t length;
} string;
typedef struct {
  string name, value;
} field;
typedef struct {
  field *fields;
  size_t count;
} field_list;
// result<own<…>, …> with a small error, which is not looked at
typedef struct {
  uint8_t failed;
  handle value;
} made;
typedef struct {
  uint8_t code;
  union {
    uint64_t align;
    uint8_t bytes[24];
  } payload;
} http_error;
// result<own<…>, error-code>
typedef struct {
  uint8_t failed;
  union {
    handle value;
    http_error error;
  };
} outcome;
// option<result<result<own<incoming-response>, error-code>>>
typedef struct {
  uint8_t is_some;
  struct {
    uint8_t failed;
    outcome outcome;
  } value;
} answer;
typedef struct {
  uint8_t is_closed;
  handle error;
} stream_error;
// result<_, stream-error>
typedef struct {
  uint8_t failed;
  stream_error error;
} written;
// result<list<u8>, stream-error>
typedef struct {
  uint8_t failed;
  union {
    string bytes;
    stream_error error;
  };
} chunk;
_Static_assert(sizeof(http_error) == 32 && sizeof(outcome) == 40 && sizeof(answer) == 56 && sizeof(chunk) == 12,
               "the sizes of the canonical ABI");

#define IMPORT(interface, name) __attribute__((import_module("wasi:" interface "@0.2.12"), import_name(name))) extern

IMPORT("http/types", "[static]fields.from-list")
void wasi_fields_from_list(const field *fields, size_t count, made *result);
IMPORT("http/types", "[method]fields.entries")
void wasi_fields_entries(handle self, field_list *result);
IMPORT("http/types", "[resource-drop]fields")
void wasi_fields_drop(handle self);
IMPORT("http/types", "[constructor]outgoing-request")
handle wasi_request_new(handle headers);
IMPORT("http/types", "[method]outgoing-request.body")
void wasi_request_body(handle self, made *result);
IMPORT("http/types", "[method]outgoing-request.set-method")
int wasi_request_set_method(handle self, int method, const char *text, size_t length);
IMPORT("http/types", "[method]outgoing-request.set-path-with-query")
int wasi_request_set_path(handle self, int is_some, const char *text, size_t length);
IMPORT("http/types", "[method]outgoing-request.set-scheme")
int wasi_request_set_scheme(handle self, int is_some, int scheme, const char *text, size_t length);
IMPORT("http/types", "[method]outgoing-request.set-authority")
int wasi_request_set_authority(handle self, int is_some, const char *text, size_t length);
IMPORT("http/types", "[method]outgoing-body.write")
void wasi_body_write(handle self, made *result);
IMPORT("http/types", "[static]outgoing-body.finish")
void wasi_body_finish(handle self, int has_trailers, handle trailers, outcome *result);
IMPORT("http/types", "[method]future-incoming-response.subscribe")
handle wasi_future_subscribe(handle self);
IMPORT("http/types", "[method]future-incoming-response.get")
void wasi_future_get(handle self, answer *result);
IMPORT("http/types", "[resource-drop]future-incoming-response")
void wasi_future_drop(handle self);
IMPORT("http/types", "[method]incoming-response.status")
int wasi_response_status(handle self);
IMPORT("http/types", "[method]incoming-response.headers")
handle wasi_response_headers(handle self);
IMPORT("http/types", "[method]incoming-response.consume")
void wasi_response_consume(handle self, made *result);
IMPORT("http/types", "[resource-drop]incoming-response")
void wasi_response_drop(handle self);
IMPORT("http/types", "[method]incoming-body.stream")
void wasi_incoming_stream(handle self, made *result);
IMPORT("http/types", "[resource-drop]incoming-body")
void wasi_incoming_drop(handle self);
IMPORT("http/outgoing-handler", "handle")
void wasi_handle_request(handle request, int has_options, handle options, outcome *result);
IMPORT("io/poll", "[method]pollable.block")
void wasi_pollable_block(handle self);
IMPORT("io/poll", "[resource-drop]pollable")
void wasi_pollable_drop(handle self);
IMPORT("io/error", "[method]error.to-debug-string")
void wasi_error_text(handle self, string *result);
IMPORT("io/streams", "[method]output-stream.blocking-write-and-flush")
void wasi_output_write(handle self, const char *bytes, size_t length, written *result);
IMPORT("io/streams", "[resource-drop]output-stream")
void wasi_output_drop(handle self);
IMPORT("io/streams", "[method]input-stream.blocking-read")
void wasi_input_read(handle self, uint64_t length, chunk *result);
IMPORT("io/streams", "[resource-drop]input-stream")
void wasi_input_drop(handle self);

static const char *const METHODS[] = {"GET",     "HEAD",    "POST",  "PUT",  "DELETE",
                                      "CONNECT", "OPTIONS", "TRACE", "PATCH"};
#define METHOD_COUNT (sizeof METHODS / sizeof *METHODS)

// The cases of wasi:http's `error-code`, in its order.
static const char *const ERRORS[] = {
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
    "internal-error"};

static bool is_one_of(const char *name, const char *const *names) {
  for (; *names; names++)
    if (!strcmp(name, *names)) return true;
  return false;
}

// The server had the request, or a part of it. Only some methods may be sent again (RFC 9110, 9.2.2).
static bool broke_off(const http_request *request, const char *why, int length, toolhold_result *result) {
  static const char *const repeatable[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE", NULL};
  const char *method = request->method ? request->method : "GET";
  if (is_one_of(method, repeatable))
    return toolhold_fail(result, TOOLHOLD_RETRYABLE, "%s %s broke off: %.*s", method, request->url, length, why);
  return toolhold_fail(result, TOOLHOLD_FATAL,
                       "%s %s broke off: %.*s. The server may have carried it out: look before it is sent again",
                       method, request->url, length, why);
}

// What to say of an error, and whose move it is.
static bool failed(const http_request *request, uint8_t code, toolhold_result *result) {
  static const char *const wrong[] = {"DNS-error",
                                      "destination-not-found",
                                      "HTTP-request-URI-invalid",
                                      "HTTP-request-URI-too-long",
                                      "HTTP-request-method-invalid",
                                      NULL};
  static const char *const silent[] = {"DNS-timeout",        "destination-unavailable",  "connection-refused",
                                       "connection-timeout", "connection-limit-reached", NULL};
  static const char *const broken[] = {"connection-terminated",    "connection-read-timeout", "connection-write-timeout",
                                       "HTTP-response-incomplete", "HTTP-response-timeout",   NULL};
  const char *url = request->url;
  const char *method = request->method ? request->method : "GET";
  const char *name = code < sizeof ERRORS / sizeof *ERRORS ? ERRORS[code] : "unknown error";
  if (!strcmp(name, "HTTP-request-denied")) {
    const char *host = strstr(url, "://");
    int origin = host ? (int)(host + 3 - url + strcspn(host + 3, "/?#")) : 0;
    return toolhold_fail(result, TOOLHOLD_FATAL,
                         "%s %s was not granted to this module; an operator can: toolhold modules grant MODULE "
                         "--with-http %.*s",
                         method, url, origin, url);
  }
  if (!strcmp(name, "destination-IP-prohibited"))
    return toolhold_fail(result, TOOLHOLD_FATAL, "%s is on a private network, which the grant does not include", url);
  if (!strcmp(name, "loop-detected"))
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                         "%s redirects more often than the grant allows; ask for the address that it leads to", url);
  if (is_one_of(name, wrong)) return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "%s cannot be reached: %s", url, name);
  if (is_one_of(name, silent)) return toolhold_fail(result, TOOLHOLD_RETRYABLE, "%s did not answer: %s", url, name);
  if (is_one_of(name, broken)) return broke_off(request, name, (int)strlen(name), result);
  return toolhold_fail(result, TOOLHOLD_FATAL, "%s %s failed: %s", method, url, name);
}

static bool has_header(const http_request *request, const char *name) {
  for (size_t index = 0; index < request->header_count; index++)
    if (!strcasecmp(request->headers[index].name, name)) return true;
  return false;
}

static bool make_headers(const http_request *request, handle *headers) {
  field *fields = json_allocate(NULL, (request->header_count + 1) * sizeof *fields);
  size_t count = 0;
  for (; count < request->header_count; count++) {
    const http_header *header = &request->headers[count];
    fields[count].name = (string){header->name, strlen(header->name)};
    fields[count].value = (string){header->value, strlen(header->value)};
  }
  char length[24];
  // Without it the body is sent in chunks, which some servers do not read.
  if (request->body && !has_header(request, "content-length")) {
    int digits = snprintf(length, sizeof length, "%zu", request->body_length);
    fields[count].name = (string){"content-length", strlen("content-length")};
    fields[count++].value = (string){length, (size_t)digits};
  }
  made result;
  wasi_fields_from_list(fields, count, &result);
  *headers = result.value;
  return !result.failed;
}

static bool set_target(handle outgoing, const http_request *request) {
  const char *rest = strstr(request->url, "://");
  if (!rest) return false;
  size_t scheme = (size_t)(rest - request->url);
  int is_https = scheme == 5 && !strncasecmp(request->url, "https", 5);
  if (!is_https && !(scheme == 4 && !strncasecmp(request->url, "http", 4))) return false;
  rest += 3;
  size_t authority = strcspn(rest, "/?#");
  size_t length = strcspn(rest + authority, "#");
  if (authority == 0) return false;
  const char *path = rest + authority;
  if (*path != '/') {
    char *rooted = json_allocate(NULL, length + 1);
    rooted[0] = '/';
    memcpy(rooted + 1, path, length);
    path = rooted;
    length++;
  }
  return !wasi_request_set_scheme(outgoing, 1, is_https, NULL, 0) && !wasi_request_set_authority(outgoing, 1, rest, authority) &&
         !wasi_request_set_path(outgoing, 1, path, length);
}

static bool set_method(handle outgoing, const char *method) {
  for (size_t index = 0; index < METHOD_COUNT; index++)
    if (!strcmp(METHODS[index], method)) return !wasi_request_set_method(outgoing, (int)index, NULL, 0);
  return !wasi_request_set_method(outgoing, METHOD_COUNT, method, strlen(method));
}

// Why a body was refused comes in the response's place.
static void send_body(handle body, const char *bytes, size_t length) {
  made stream;
  wasi_body_write(body, &stream);
  if (stream.failed) return;
  for (size_t at = 0; at < length; at += WRITE) {
    written result;
    wasi_output_write(stream.value, bytes + at, length - at < WRITE ? length - at : WRITE, &result);
    if (result.failed) return;
  }
  wasi_output_drop(stream.value);
  outcome result;
  wasi_body_finish(body, 0, 0, &result);
}

static void read_headers(handle incoming, http_response *response) {
  handle headers = wasi_response_headers(incoming);
  field_list list;
  wasi_fields_entries(headers, &list);
  wasi_fields_drop(headers);
  response->headers = json_allocate(NULL, (list.count + 1) * sizeof *response->headers);
  response->header_count = list.count;
  for (size_t index = 0; index < list.count; index++) {
    const field *found = &list.fields[index];
    char *name = json_allocate(NULL, found->name.length + 1);
    for (size_t at = 0; at < found->name.length; at++) name[at] = (char)tolower((unsigned char)found->name.text[at]);
    name[found->name.length] = 0;
    char *value = json_allocate(NULL, found->value.length + 1);
    memcpy(value, found->value.text, found->value.length);
    value[found->value.length] = 0;
    response->headers[index] = (http_header){name, value};
  }
}

static bool read_body(const http_request *request, handle incoming, http_response *response, toolhold_result *result) {
  made body, stream;
  wasi_response_consume(incoming, &body);
  if (body.failed) return toolhold_fail(result, TOOLHOLD_FATAL, "the host gave no body");
  wasi_incoming_stream(body.value, &stream);
  if (stream.failed) return toolhold_fail(result, TOOLHOLD_FATAL, "the host gave no body");
  size_t most = request->most ? request->most : 1 << 20;
  response->body = json_allocate(NULL, 1);
  while (!response->is_cut) {
    size_t room = most - response->body_length;
    // One byte more says whether there is more.
    size_t wanted = room < READ ? room + 1 : READ;
    chunk read;
    wasi_input_read(stream.value, wanted, &read);
    if (read.failed) {
      if (read.error.is_closed) break;
      string why;
      wasi_error_text(read.error.error, &why);
      return broke_off(request, why.text, (int)why.length, result);
    }
    size_t taken = read.bytes.length > room ? room : read.bytes.length;
    response->is_cut = taken < read.bytes.length;
    response->body = json_allocate(response->body, response->body_length + taken + 1);
    memcpy(response->body + response->body_length, read.bytes.text, taken);
    response->body_length += taken;
    if (read.bytes.length > 0) free((void *)read.bytes.text);
  }
  response->body[response->body_length] = 0;
  wasi_input_drop(stream.value);
  wasi_incoming_drop(body.value);
  wasi_response_drop(incoming);
  return true;
}

bool http_send(const http_request *request, http_response *response, toolhold_result *result) {
  *response = (http_response){0};
  const char *method = request->method ? request->method : "GET";
  handle headers;
  if (!make_headers(request, &headers))
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "a header of %s %s cannot be sent", method, request->url);
  handle outgoing = wasi_request_new(headers);
  if (!set_method(outgoing, method) || !set_target(outgoing, request))
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                         "%s %s is no request that can be sent: write an absolute URL with https://", method,
                         request->url);
  made body = {.failed = 1};
  if (request->body) wasi_request_body(outgoing, &body);
  outcome sent;
  wasi_handle_request(outgoing, 0, 0, &sent);
  if (sent.failed) return failed(request, sent.error.code, result);
  if (!body.failed) send_body(body.value, request->body, request->body_length);

  handle ready = wasi_future_subscribe(sent.value);
  wasi_pollable_block(ready);
  wasi_pollable_drop(ready);
  answer answer;
  wasi_future_get(sent.value, &answer);
  wasi_future_drop(sent.value);
  if (!answer.is_some || answer.value.failed)
    return toolhold_fail(result, TOOLHOLD_FATAL, "%s %s: the host gave no response", method, request->url);
  if (answer.value.outcome.failed) return failed(request, answer.value.outcome.error.code, result);

  handle incoming = answer.value.outcome.value;
  response->status = (unsigned)wasi_response_status(incoming);
  read_headers(incoming, response);
  return read_body(request, incoming, response, result);
}

const char *http_response_header(const http_response *response, const char *name) {
  for (size_t index = 0; index < response->header_count; index++)
    if (!strcmp(response->headers[index].name, name)) return response->headers[index].value;
  return NULL;
}
