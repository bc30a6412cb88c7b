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
    struct {
      uint8_t is_some;
      string text;
    } said;  // of an internal-error
    uint8_t bytes[24];
  } payload;
} http_error;
// option<error-code>
typedef struct {
  uint8_t is_some;
  http_error error;
} maybe_error;
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
_Static_assert(sizeof(http_error) == 32 && sizeof(outcome) == 40 && sizeof(answer) == 56 && sizeof(maybe_error) == 40 &&
                   sizeof(chunk) == 12,
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
IMPORT("http/types", "[resource-drop]outgoing-request")
void wasi_request_drop(handle self);
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
IMPORT("http/types", "[constructor]request-options")
handle wasi_options_new(void);
IMPORT("http/types", "[method]request-options.set-first-byte-timeout")
int wasi_options_set_first_byte(handle self, int is_some, uint64_t nanoseconds);
IMPORT("http/types", "[resource-drop]request-options")
void wasi_options_drop(handle self);
IMPORT("http/types", "[method]outgoing-body.write")
void wasi_body_write(handle self, made *result);
IMPORT("http/types", "[static]outgoing-body.finish")
void wasi_body_finish(handle self, int has_trailers, handle trailers, outcome *result);
IMPORT("http/types", "[resource-drop]outgoing-body")
void wasi_body_drop(handle self);
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
IMPORT("http/types", "http-error-code")
void wasi_error_code(handle error, maybe_error *result);
IMPORT("http/outgoing-handler", "handle")
void wasi_handle_request(handle request, int has_options, handle options, outcome *result);
IMPORT("clocks/monotonic-clock", "subscribe-duration")
handle wasi_subscribe_duration(uint64_t nanoseconds);
IMPORT("io/poll", "poll")
void wasi_poll(const handle *pollables, size_t count, string *ready);
IMPORT("io/poll", "[method]pollable.ready")
int wasi_pollable_ready(handle self);
IMPORT("io/poll", "[resource-drop]pollable")
void wasi_pollable_drop(handle self);
IMPORT("io/error", "[method]error.to-debug-string")
void wasi_error_text(handle self, string *result);
IMPORT("io/error", "[resource-drop]error")
void wasi_error_drop(handle self);
IMPORT("io/streams", "[method]output-stream.blocking-write-and-flush")
void wasi_output_write(handle self, const char *bytes, size_t length, written *result);
IMPORT("io/streams", "[resource-drop]output-stream")
void wasi_output_drop(handle self);
IMPORT("io/streams", "[method]input-stream.subscribe")
handle wasi_input_subscribe(handle self);
IMPORT("io/streams", "[method]input-stream.read")
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

// What one request holds of the host; 0 where there is none. The order is that in which it is dropped: what belongs to
// something else goes before it.
typedef struct {
  handle readable, input, incoming_body, incoming;
  handle answered, future;
  handle output, body;
  handle outgoing, options, headers;
  handle deadline;  // a pollable that is ready when the time is over; 0 where none was given
} exchange;

static void drop(handle *held, void (*drop_it)(handle)) {
  if (*held) drop_it(*held);
  *held = 0;
}

// The host counts a request as open until the last of these is gone.
static void drop_all(exchange *of) {
  drop(&of->readable, wasi_pollable_drop);
  drop(&of->input, wasi_input_drop);
  drop(&of->incoming_body, wasi_incoming_drop);
  drop(&of->incoming, wasi_response_drop);
  drop(&of->answered, wasi_pollable_drop);
  drop(&of->future, wasi_future_drop);
  drop(&of->output, wasi_output_drop);
  drop(&of->body, wasi_body_drop);
  drop(&of->outgoing, wasi_request_drop);
  drop(&of->options, wasi_options_drop);
  drop(&of->headers, wasi_fields_drop);
  drop(&of->deadline, wasi_pollable_drop);
}

static bool is_one_of(const char *name, const char *const *names) {
  for (; *names; names++)
    if (!strcmp(name, *names)) return true;
  return false;
}

static const char *method_of(const http_request *request) { return request->method ? request->method : "GET"; }

// The server had the request, or a part of it. Only some methods may be sent again (RFC 9110, 9.2.2).
static bool broke_off(const http_request *request, const char *why, int length, toolhold_result *result) {
  static const char *const repeatable[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE", NULL};
  const char *method = method_of(request);
  if (is_one_of(method, repeatable))
    return toolhold_fail(result, TOOLHOLD_RETRYABLE, "%s %s broke off: %.*s", method, request->url, length, why);
  return toolhold_fail(result, TOOLHOLD_FATAL,
                       "%s %s broke off: %.*s. The server may have carried it out: look before it is sent again",
                       method, request->url, length, why);
}

static bool too_late(const http_request *request, toolhold_result *result) {
  char why[80];
  int length = snprintf(why, sizeof why, "it took longer than the %u ms that the module gave it",
                        (unsigned)request->timeout_ms);
  return broke_off(request, why, length, result);
}

// What to say of an error, and whose move it is (docs/modules.md, "HTTP").
static bool failed(const http_request *request, const http_error *error, toolhold_result *result) {
  static const char *const wrong[] = {"DNS-error",
                                      "destination-not-found",
                                      "HTTP-request-URI-invalid",
                                      "HTTP-request-URI-too-long",
                                      "HTTP-request-method-invalid",
                                      NULL};
  static const char *const silent[] = {"DNS-timeout", "destination-unavailable", "connection-refused",
                                       "connection-timeout", NULL};
  static const char *const broken[] = {"connection-terminated",    "connection-read-timeout", "connection-write-timeout",
                                       "HTTP-response-incomplete", "HTTP-response-timeout",   NULL};
  const char *url = request->url;
  const char *method = method_of(request);
  const char *name = error->code < sizeof ERRORS / sizeof *ERRORS ? ERRORS[error->code] : "unknown error";
  const char *host = strstr(url, "://");
  int origin = host ? (int)(host + 3 - url + strcspn(host + 3, "/?#")) : 0;
  if (!strcmp(name, "HTTP-request-denied"))
    return toolhold_fail(result, TOOLHOLD_FATAL,
                         "%s %s was not granted to this module, or redirects to what was not; an operator can: "
                         "toolhold modules grant MODULE --with-http %.*s (toolhold modules call names what was refused)",
                         method, url, origin, url);
  if (!strcmp(name, "destination-IP-prohibited"))
    return toolhold_fail(result, TOOLHOLD_FATAL,
                         "%s is on a private network, or redirects to one, which the grant does not include; an operator "
                         "can: toolhold modules grant MODULE --with-http %.*s --private",
                         url, origin, url);
  if (!strcmp(name, "loop-detected"))
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                         "%s redirects more often than the grant allows; ask for the address that it leads to", url);
  if (!strcmp(name, "connection-limit-reached"))
    return toolhold_fail(result, TOOLHOLD_FATAL,
                         "%s %s was not sent: this call reached its limit of requests (`http_requests`) or of requests "
                         "at once (`http_concurrent`)",
                         method, url);
  if (!strcmp(name, "HTTP-request-body-size"))
    return toolhold_fail(result, TOOLHOLD_FATAL,
                         "%s %s was not sent: its body is more than this call may send (`http_request_bytes`), or has "
                         "another length than its header says",
                         method, url);
  if (!strcmp(name, "HTTP-response-body-size"))
    return toolhold_fail(result, TOOLHOLD_FATAL,
                         "what %s answered is more than this call may receive (`http_response_bytes`)", url);
  if (is_one_of(name, wrong)) return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "%s cannot be reached: %s", url, name);
  if (is_one_of(name, silent)) return toolhold_fail(result, TOOLHOLD_RETRYABLE, "%s did not answer: %s", url, name);
  if (is_one_of(name, broken)) return broke_off(request, name, (int)strlen(name), result);
  if (!strcmp(name, "internal-error") && error->payload.said.is_some)
    return toolhold_fail(result, TOOLHOLD_FATAL, "%s %s failed: %.*s", method, url,
                         (int)error->payload.said.text.length, error->payload.said.text.text);
  return toolhold_fail(result, TOOLHOLD_FATAL, "%s %s failed: %s", method, url, name);
}

// The same, unless the request's own time is over, which is why it failed then.
static bool ended(const http_request *request, const exchange *of, const http_error *error, toolhold_result *result) {
  if (of->deadline && wasi_pollable_ready(of->deadline)) return too_late(request, result);
  return failed(request, error, result);
}

// Waits until a pollable is ready; false where the time is over before.
static bool wait_for(const exchange *of, handle ready) {
  handle both[] = {ready, of->deadline};
  while (!wasi_pollable_ready(ready)) {
    if (of->deadline && wasi_pollable_ready(of->deadline)) return false;
    string list;
    wasi_poll(both, of->deadline ? 2 : 1, &list);
    if (list.length > 0) free((void *)list.text);
  }
  return true;
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
  free(fields);
  if (!result.failed) *headers = result.value;
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
  const char *path = rest + authority;
  size_t length = strcspn(path, "#");
  if (authority == 0) return false;
  char *rooted = json_allocate(NULL, length + 1);
  size_t slash = *path != '/';
  rooted[0] = '/';
  memcpy(rooted + slash, path, length);
  bool is_set = !wasi_request_set_scheme(outgoing, 1, is_https, NULL, 0) &&
                !wasi_request_set_authority(outgoing, 1, rest, authority) &&
                !wasi_request_set_path(outgoing, 1, rooted, length + slash);
  free(rooted);
  return is_set;
}

static bool set_method(handle outgoing, const char *method) {
  for (size_t index = 0; index < METHOD_COUNT; index++)
    if (!strcmp(METHODS[index], method)) return !wasi_request_set_method(outgoing, (int)index, NULL, 0);
  return !wasi_request_set_method(outgoing, METHOD_COUNT, method, strlen(method));
}

// The host ends what the module cannot, as it waits for nothing but the host while it sends a body: a little later than
// the module, whose words are about its own time.
static void limit_time(const http_request *request, exchange *of) {
  uint64_t nanoseconds = request->timeout_ms * UINT64_C(1000000);
  of->deadline = wasi_subscribe_duration(nanoseconds);
  of->options = wasi_options_new();
  wasi_options_set_first_byte(of->options, 1, nanoseconds + 50 * UINT64_C(1000000));
}

// Why a body was refused comes in the response's place.
static void send_body(exchange *of, const char *bytes, size_t length) {
  made stream;
  wasi_body_write(of->body, &stream);
  if (stream.failed) return;
  of->output = stream.value;
  for (size_t at = 0; at < length; at += WRITE) {
    written result;
    wasi_output_write(of->output, bytes + at, length - at < WRITE ? length - at : WRITE, &result);
    if (result.failed) {
      if (!result.error.is_closed) wasi_error_drop(result.error.error);
      return;
    }
  }
  drop(&of->output, wasi_output_drop);
  outcome result;
  wasi_body_finish(of->body, 0, 0, &result);
  of->body = 0;
}

static char *copied(const string *from, bool is_name) {
  char *text = json_allocate(NULL, from->length + 1);
  for (size_t at = 0; at < from->length; at++)
    text[at] = is_name ? (char)tolower((unsigned char)from->text[at]) : from->text[at];
  text[from->length] = 0;
  if (from->length > 0) free((void *)from->text);
  return text;
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
    response->headers[index] = (http_header){copied(&found->name, true), copied(&found->value, false)};
  }
  if (list.count > 0) free(list.fields);
}

// What ended the body before its end.
static bool body_failed(const http_request *request, const exchange *of, handle error, toolhold_result *result) {
  maybe_error code;
  wasi_error_code(error, &code);
  if (code.is_some) {
    wasi_error_drop(error);
    return ended(request, of, &code.error, result);
  }
  string why;
  wasi_error_text(error, &why);
  wasi_error_drop(error);
  return broke_off(request, why.text, (int)why.length, result);
}

static bool read_body(const http_request *request, exchange *of, http_response *response, toolhold_result *result) {
  made body, stream;
  wasi_response_consume(of->incoming, &body);
  if (body.failed) return toolhold_fail(result, TOOLHOLD_FATAL, "the host gave no body");
  of->incoming_body = body.value;
  wasi_incoming_stream(of->incoming_body, &stream);
  if (stream.failed) return toolhold_fail(result, TOOLHOLD_FATAL, "the host gave no body");
  of->input = stream.value;
  of->readable = wasi_input_subscribe(of->input);
  size_t most = request->most ? request->most : 1 << 20;
  response->body = json_allocate(NULL, 1);
  while (!response->is_cut) {
    size_t room = most - response->body_length;
    // One byte more says whether there is more.
    size_t wanted = room < READ ? room + 1 : READ;
    if (!wait_for(of, of->readable)) return too_late(request, result);
    chunk read;
    wasi_input_read(of->input, wanted, &read);
    if (read.failed) {
      if (read.error.is_closed) break;
      return body_failed(request, of, read.error.error, result);
    }
    size_t taken = read.bytes.length > room ? room : read.bytes.length;
    response->is_cut = taken < read.bytes.length;
    response->body = json_allocate(response->body, response->body_length + taken + 1);
    memcpy(response->body + response->body_length, read.bytes.text, taken);
    response->body_length += taken;
    if (read.bytes.length > 0) free((void *)read.bytes.text);
  }
  response->body[response->body_length] = 0;
  return true;
}

static bool receive(const http_request *request, exchange *of, http_response *response, toolhold_result *result) {
  of->answered = wasi_future_subscribe(of->future);
  if (!wait_for(of, of->answered)) return too_late(request, result);
  answer answer;
  wasi_future_get(of->future, &answer);
  if (!answer.is_some || answer.value.failed)
    return toolhold_fail(result, TOOLHOLD_FATAL, "%s %s: the host gave no response", method_of(request), request->url);
  if (answer.value.outcome.failed) return ended(request, of, &answer.value.outcome.error, result);
  of->incoming = answer.value.outcome.value;
  response->status = (unsigned)wasi_response_status(of->incoming);
  read_headers(of->incoming, response);
  return read_body(request, of, response, result);
}

static bool run(const http_request *request, exchange *of, http_response *response, toolhold_result *result) {
  const char *method = method_of(request);
  if (!make_headers(request, &of->headers))
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "a header of %s %s cannot be sent", method, request->url);
  of->outgoing = wasi_request_new(of->headers);
  of->headers = 0;
  if (!set_method(of->outgoing, method) || !set_target(of->outgoing, request))
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                         "%s %s is no request that can be sent: write an absolute URL with https://", method,
                         request->url);
  if (request->body) {
    made body;
    wasi_request_body(of->outgoing, &body);
    if (!body.failed) of->body = body.value;
  }
  if (request->timeout_ms > 0) limit_time(request, of);
  outcome sent;
  wasi_handle_request(of->outgoing, of->options != 0, of->options, &sent);
  of->outgoing = of->options = 0;
  if (sent.failed) return failed(request, &sent.error, result);
  of->future = sent.value;
  if (of->body) send_body(of, request->body, request->body_length);
  return receive(request, of, response, result);
}

bool http_send(const http_request *request, http_response *response, toolhold_result *result) {
  *response = (http_response){0};
  exchange held = {0};
  bool is_received = run(request, &held, response, result);
  drop_all(&held);
  if (!is_received) http_response_free(response);
  return is_received;
}

void http_response_free(http_response *response) {
  for (size_t index = 0; index < response->header_count; index++) {
    free((void *)response->headers[index].name);
    free((void *)response->headers[index].value);
  }
  free(response->headers);
  free(response->body);
  *response = (http_response){0};
}

const char *http_response_header(const http_response *response, const char *name) {
  for (size_t index = 0; index < response->header_count; index++)
    if (!strcmp(response->headers[index].name, name)) return response->headers[index].value;
  return NULL;
}
