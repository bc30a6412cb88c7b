// JSON as a tree, for reading arguments, and a writer for results.
//
// Nothing is ever freed: each call is a fresh instance, whose memory goes with it.
#ifndef TOOLHOLD_JSON_H
#define TOOLHOLD_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
  JSON_NULL,
  JSON_BOOLEAN,
  JSON_INTEGER,  // fits int64_t and was written without fraction or exponent
  JSON_NUMBER,
  JSON_STRING,
  JSON_ARRAY,
  JSON_OBJECT,
} json_type;

typedef struct json {
  json_type type;
  bool boolean;
  int64_t integer;
  double number;            // also set for JSON_INTEGER
  const char *text;         // JSON_STRING: UTF-8, zero-terminated, may contain zeros
  size_t length;            // of the text in bytes, or the number of children
  const struct json *first; // JSON_ARRAY, JSON_OBJECT: the first child; the others follow by `next`
  const struct json *next;
  const char *key;          // in an object: zero-terminated
} json;

// Parses one JSON text. NULL if it is not one, or nested more than 128 deep.
const json *json_parse(const char *text, size_t length);

// The member `key`, or NULL if `value` is no object or has none.
const json *json_get(const json *value, const char *key);

// The member `key` as an integer, or `otherwise` if it is not there or no integer.
int64_t json_integer_or(const json *value, const char *key, int64_t otherwise);

// The Unicode scalar value at `*position`, which moves behind it. A byte that is not UTF-8 gives
// U+FFFD. Call it while `*position < length`.
uint32_t utf8_next(const char *text, size_t length, size_t *position);

// A JSON text under construction. Starts as zeros; commas are set where they belong.
typedef struct {
  char *text;
  size_t length;
  size_t capacity;
  bool comma;
} json_writer;

void json_begin(json_writer *to, char bracket);  // '{' or '['
void json_end(json_writer *to, char bracket);    // '}' or ']'
void json_key(json_writer *to, const char *key);
void json_null(json_writer *to);
void json_boolean(json_writer *to, bool value);
void json_integer(json_writer *to, int64_t value);
// The shortest text that reads back as `value`; null if it is not finite.
void json_number(json_writer *to, double value);
// What is not UTF-8 is written as U+FFFD.
void json_string(json_writer *to, const char *text, size_t length);
// A value that another writer has made.
void json_raw(json_writer *to, const json_writer *value);

// malloc, realloc that end the instance instead of returning NULL.
void *json_allocate(void *old, size_t size);

#endif
