// HTTP requests to the origins that the module was granted: `wasi:http`, from the parts of a request to the last
// byte of the response. A module that does not call it does not import it.
#ifndef TOOLHOLD_HTTP_H
#define TOOLHOLD_HTTP_H

#include "toolhold.h"

typedef struct {
  const char *name;
  const char *value;
} http_header;

typedef struct {
  const char *method;  // NULL: GET
  const char *url;     // absolute, http or https
  const http_header *headers;
  size_t header_count;
  const void *body;  // NULL: none
  size_t body_length;
  size_t most;  // bytes of the response's body that are read; 0: 1 MiB
  // Milliseconds for all of it, from the lookup of the host's name to the last byte; 0: what the host allows.
  uint32_t timeout_ms;
} http_request;

typedef struct {
  unsigned status;
  http_header *headers;  // in the server's order; names in lower case
  size_t header_count;
  char *body;  // with a zero after its last byte
  size_t body_length;
  bool is_cut;  // the server had more of the body than was read
} http_response;

// Sends the request and reads the response. A response of any status is a success. False: there is none, and
// the error is set, so that a tool returns: `if (!http_send(&request, &response, result)) return false;`.
// However it ends, nothing of the host is held afterwards: a module sends its next request, whatever came of this one.
bool http_send(const http_request *request, http_response *response, toolhold_result *result);

// Frees the memory of a response, which is zeros then. A call is a fresh instance whose memory goes with it, so only a
// module that reads more than its memory holds has to; after a failure there is nothing to free.
void http_response_free(http_response *response);

// The value of the first header of this name, which is in lower case; NULL if there is none.
const char *http_response_header(const http_response *response, const char *name);

#endif
