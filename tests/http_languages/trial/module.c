// Requests as authors write them, with what they forget.
#include "http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY 12

static char *joined(const char *base, const char *path) {
  char *url;
  if (asprintf(&url, "%s%s", base, path) < 0) abort();
  return url;
}

static bool run(const json *arguments, toolhold_result *result) {
  const char *how = json_get(arguments, "how")->text, *base = json_get(arguments, "url")->text;
  http_response response;
  json_writer *to = &result->output;
  if (!strcmp(how, "unread")) {
    size_t cut = 0;
    for (int index = 0; index < MANY; index++) {
      http_request request = {.url = joined(base, "/long"), .most = 1};
      if (!http_send(&request, &response, result)) return false;
      cut += response.is_cut && response.body_length == 1;
      http_response_free(&response);
    }
    json_integer(to, (int64_t)cut);
    return true;
  }
  if (!strcmp(how, "errors")) {
    const char *const paths[] = {"/cut", " no path", "/text"};
    http_header header = {"x y", "no header"};
    int failures = 0;
    for (int index = 0; index < MANY; index++) {
      http_request request = {.method = "POST", .url = joined(base, paths[index % 3]), .body = "body", .body_length = 4};
      if (index % 3 == 2) request.headers = &header, request.header_count = 1;
      toolhold_result failure = {0};
      failures += !http_send(&request, &response, &failure);
    }
    http_request request = {.url = joined(base, "/text")};
    if (!http_send(&request, &response, result)) return false;
    json_begin(to, '[');
    json_integer(to, failures);
    json_integer(to, response.status);
    json_end(to, ']');
    return true;
  }
  http_request request = {.timeout_ms = 300};
  if (!strcmp(how, "timeout")) request.url = joined(base, "/slow");
  if (!strcmp(how, "timeout of a post")) request.url = joined(base, "/slow"), request.method = "POST";
  if (!strcmp(how, "timeout of a large body")) {
    request.url = joined(base, "/slow"), request.method = "POST";
    request.body_length = 12 << 20;
    request.body = calloc(1, request.body_length);
    if (!request.body) abort();
  }
  if (!strcmp(how, "the host's time")) {
    request.url = joined(base, "/slow"), request.timeout_ms = 30000;
    toolhold_result failure = {0};
    if (http_send(&request, &response, &failure)) return false;
    json_string(to, failure.message, strlen(failure.message));
    return true;
  }
  if (!strcmp(how, "timeout in the body")) request.url = joined(base, "/trickle");
  if (!request.url) return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "no such way: %s", how);
  if (!http_send(&request, &response, result)) return false;
  json_integer(to, response.status);
  return true;
}

const toolhold_tool toolhold_tools[] = {{
    .name = "run",
    .description = "d",
    .input_schema = "{\"type\":\"object\"}",
    .run = run,
}};
const size_t toolhold_tool_count = 1;
