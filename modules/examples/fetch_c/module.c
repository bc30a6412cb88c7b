// The request of ../README.md in C.
#include "http.h"

#include <string.h>

// How many bytes the first `most` characters of UTF-8 have.
static size_t characters(const char *text, size_t length, size_t most) {
  size_t at = 0;
  for (; at < length; at++)
    if (((unsigned char)text[at] & 0xc0) != 0x80 && most-- == 0) break;
  return at;
}

static bool fetch(const json *arguments, toolhold_result *result) {
  const json *url = json_get(arguments, "url"), *body = json_get(arguments, "body");
  if (!url || url->type != JSON_STRING)
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`url` must be a string");
  if (body && body->type != JSON_STRING)
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`body` must be a string");

  http_header type = {"content-type", "text/plain"};
  http_request request = {.url = url->text};
  if (body) {
    request.method = "POST";
    request.headers = &type;
    request.header_count = 1;
    request.body = body->text;
    request.body_length = body->length;
  }
  http_response response;
  if (!http_send(&request, &response, result)) return false;

  const char *found = http_response_header(&response, "content-type");
  json_writer *to = &result->output;
  json_begin(to, '{');
  json_key(to, "status");
  json_integer(to, response.status);
  json_key(to, "type");
  json_string(to, found ? found : "", found ? strlen(found) : 0);
  json_key(to, "text");
  json_string(to, response.body, characters(response.body, response.body_length, 1000));
  json_end(to, '}');
  return true;
}

const toolhold_tool toolhold_tools[] = {{
    .name = "fetch",
    .title = "Fetch",
    .description = "Sends a request and returns what the server answered.",
    .input_schema =
        "{\"type\":\"object\",\"properties\":{"
        "\"url\":{\"type\":\"string\",\"description\":\"Where to send it, with https://.\"},"
        "\"body\":{\"type\":\"string\",\"description\":\"What to post. Without it, the URL is got.\"}},"
        "\"required\":[\"url\"],\"additionalProperties\":false}",
    .annotations = TOOLHOLD_OPEN_WORLD,
    .run = fetch,
}};
const size_t toolhold_tool_count = 1;
