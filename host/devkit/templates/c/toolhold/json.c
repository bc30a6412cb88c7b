#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The host has checked the text before; this bounds the recursion should it ever not have.
#define MAX_DEPTH 128

typedef struct {
  const char *at;
  const char *end;
} reader;

static bool parse_value(reader *from, json *value, int depth);

void *json_allocate(void *old, size_t size) {
  void *memory = realloc(old, size ? size : 1);
  if (!memory) abort();
  return memory;
}

static void skip_space(reader *from) {
  while (from->at < from->end && strchr(" \t\n\r", *from->at) && *from->at) from->at++;
}

static bool take(reader *from, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(from->end - from->at) < length || memcmp(from->at, word, length)) return false;
  from->at += length;
  return true;
}

static bool parse_hex(reader *from, uint32_t *unit) {
  if (from->end - from->at < 4) return false;
  *unit = 0;
  for (int digit = 0; digit < 4; digit++) {
    char c = *from->at++;
    int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (value < 0) return false;
    *unit = *unit << 4 | (uint32_t)value;
  }
  return true;
}

static char *put_utf8(char *to, uint32_t scalar) {
  if (scalar < 0x80) {
    *to++ = (char)scalar;
  } else if (scalar < 0x800) {
    *to++ = (char)(0xC0 | scalar >> 6);
    *to++ = (char)(0x80 | (scalar & 63));
  } else if (scalar < 0x10000) {
    *to++ = (char)(0xE0 | scalar >> 12);
    *to++ = (char)(0x80 | (scalar >> 6 & 63));
    *to++ = (char)(0x80 | (scalar & 63));
  } else {
    *to++ = (char)(0xF0 | scalar >> 18);
    *to++ = (char)(0x80 | (scalar >> 12 & 63));
    *to++ = (char)(0x80 | (scalar >> 6 & 63));
    *to++ = (char)(0x80 | (scalar & 63));
  }
  return to;
}

static bool parse_unicode_escape(reader *from, char **to) {
  uint32_t unit, low;
  if (!parse_hex(from, &unit)) return false;
  if (unit >= 0xD800 && unit < 0xDC00) {
    if (!take(from, "\\u") || !parse_hex(from, &low) || low < 0xDC00 || low > 0xDFFF) return false;
    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
  } else if (unit >= 0xDC00 && unit <= 0xDFFF) {
    return false;
  }
  *to = put_utf8(*to, unit);
  return true;
}

static bool parse_string(reader *from, const char **text, size_t *length) {
  if (!take(from, "\"")) return false;
  // No escape is shorter than what it stands for.
  const char *close = from->at;
  while (close < from->end && *close != '"') close += *close == '\\' ? 2 : 1;
  if (close >= from->end) return false;
  char *start = json_allocate(NULL, (size_t)(close - from->at) + 1), *to = start;
  while (from->at < close) {
    char c = *from->at++;
    if (c != '\\') {
      *to++ = c;
      continue;
    }
    c = *from->at++;
    const char *name = c ? strchr("\"\\/bfnrt", c) : NULL;
    if (name) {
      *to++ = "\"\\/\b\f\n\r\t"[name - "\"\\/bfnrt"];
    } else if (c != 'u' || !parse_unicode_escape(from, &to)) {
      return false;
    }
  }
  from->at = close + 1;
  *to = 0;
  *text = start;
  *length = (size_t)(to - start);
  return true;
}

static bool parse_number(reader *from, json *value) {
  const char *start = from->at;
  while (from->at < from->end && *from->at && strchr("+-.eE0123456789", *from->at)) from->at++;
  size_t length = (size_t)(from->at - start);
  if (!length) return false;
  char *digits = json_allocate(NULL, length + 1), *end;
  memcpy(digits, start, length);
  digits[length] = 0;
  value->type = JSON_NUMBER;
  value->number = strtod(digits, &end);
  if (*end) return false;
  if (!strpbrk(digits, ".eE") && value->number > -0x1p63 && value->number < 0x1p63) {
    value->type = JSON_INTEGER;
    value->integer = strtoll(digits, NULL, 10);
  } else if (!strcmp(digits, "-9223372036854775808")) {
    value->type = JSON_INTEGER;
    value->integer = INT64_MIN;
  } else if (!strpbrk(digits, ".eE") && length == 19 && strcmp(digits, "9223372036854775807") <= 0) {
    // As a double it rounds up to 2^63.
    value->type = JSON_INTEGER;
    value->integer = strtoll(digits, NULL, 10);
  }
  return true;
}

static bool parse_children(reader *from, json *value, const char *close, int depth) {
  json *last = NULL;
  for (skip_space(from); !take(from, close); skip_space(from)) {
    json *child = json_allocate(NULL, sizeof *child);
    memset(child, 0, sizeof *child);
    if (last && !take(from, ",")) return false;
    skip_space(from);
    if (value->type == JSON_OBJECT) {
      size_t length;
      if (!parse_string(from, &child->key, &length)) return false;
      skip_space(from);
      if (!take(from, ":")) return false;
    }
    if (!parse_value(from, child, depth + 1)) return false;
    if (last) last->next = child;
    else value->first = child;
    last = child;
    value->length++;
  }
  return true;
}

static bool parse_value(reader *from, json *value, int depth) {
  skip_space(from);
  if (depth > MAX_DEPTH || from->at >= from->end) return false;
  switch (*from->at) {
    case '{':
      from->at++;
      value->type = JSON_OBJECT;
      return parse_children(from, value, "}", depth);
    case '[':
      from->at++;
      value->type = JSON_ARRAY;
      return parse_children(from, value, "]", depth);
    case '"':
      value->type = JSON_STRING;
      return parse_string(from, &value->text, &value->length);
    case 'n':
      return take(from, "null");
    case 't':
      value->type = JSON_BOOLEAN;
      value->boolean = true;
      return take(from, "true");
    case 'f':
      value->type = JSON_BOOLEAN;
      return take(from, "false");
    default:
      return parse_number(from, value);
  }
}

const json *json_parse(const char *text, size_t length) {
  reader from = {text, text + length};
  json *value = json_allocate(NULL, sizeof *value);
  memset(value, 0, sizeof *value);
  if (!parse_value(&from, value, 0)) return NULL;
  skip_space(&from);
  return from.at == from.end ? value : NULL;
}

const json *json_get(const json *value, const char *key) {
  if (!value || value->type != JSON_OBJECT) return NULL;
  for (const json *child = value->first; child; child = child->next)
    if (!strcmp(child->key, key)) return child;
  return NULL;
}

int64_t json_integer_or(const json *value, const char *key, int64_t otherwise) {
  const json *member = json_get(value, key);
  return member && member->type == JSON_INTEGER ? member->integer : otherwise;
}

uint32_t utf8_next(const char *text, size_t length, size_t *position) {
  const unsigned char *at = (const unsigned char *)text + *position;
  size_t left = length - *position;
  size_t size = at[0] < 0x80 ? 1 : at[0] >= 0xC2 && at[0] < 0xE0 ? 2 : (at[0] & 0xF0) == 0xE0 ? 3 : at[0] >= 0xF0 && at[0] < 0xF5 ? 4 : 0;
  uint32_t scalar = size == 1 ? at[0] : size == 2 ? at[0] & 31 : size == 3 ? at[0] & 15 : at[0] & 7;
  bool good = size && size <= left;
  for (size_t index = 1; good && index < size; index++) {
    good = (at[index] & 0xC0) == 0x80;
    scalar = scalar << 6 | (at[index] & 63);
  }
  // Too long a form, a surrogate half, or beyond Unicode.
  good = good && !(size == 3 && scalar < 0x800) && !(size == 4 && (scalar < 0x10000 || scalar > 0x10FFFF)) &&
         !(scalar >= 0xD800 && scalar <= 0xDFFF);
  *position += good ? size : 1;
  return good ? scalar : 0xFFFD;
}

static void append(json_writer *to, const char *text, size_t length) {
  if (to->capacity - to->length < length) {
    to->capacity = (to->capacity + length) * 2;
    to->text = json_allocate(to->text, to->capacity);
  }
  memcpy(to->text + to->length, text, length);
  to->length += length;
}

static void append_value(json_writer *to, const char *text, size_t length) {
  if (to->comma) append(to, ",", 1);
  append(to, text, length);
  to->comma = true;
}

void json_begin(json_writer *to, char bracket) {
  append_value(to, &bracket, 1);
  to->comma = false;
}

void json_end(json_writer *to, char bracket) {
  append(to, &bracket, 1);
  to->comma = true;
}

void json_key(json_writer *to, const char *key) {
  json_string(to, key, strlen(key));
  append(to, ":", 1);
  to->comma = false;
}

void json_raw(json_writer *to, const json_writer *value) { append_value(to, value->text, value->length); }

void json_null(json_writer *to) { append_value(to, "null", 4); }

void json_boolean(json_writer *to, bool value) { append_value(to, value ? "true" : "false", value ? 4 : 5); }

void json_integer(json_writer *to, int64_t value) {
  char digits[24];
  append_value(to, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)value));
}

void json_number(json_writer *to, double value) {
  if (!isfinite(value)) {
    json_null(to);
    return;
  }
  char digits[32];
  int length = 0;
  for (int precision = 15; precision <= 17; precision++) {
    length = snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (strtod(digits, NULL) == value) break;
  }
  append_value(to, digits, (size_t)length);
}

void json_string(json_writer *to, const char *text, size_t length) {
  append_value(to, "\"", 1);
  size_t start = 0;  // of what is not yet written
  for (size_t position = 0; position < length;) {
    size_t before = position;
    uint32_t scalar = utf8_next(text, length, &position);
    bool broken = scalar == 0xFFFD && position - before == 1;
    if (scalar >= 0x20 && scalar != '"' && scalar != '\\' && !broken) continue;
    append(to, text + start, before - start);
    start = position;
    char escape[8];
    const char *replacement = escape;
    if (broken) replacement = "\xEF\xBF\xBD";
    else if (scalar == '"') replacement = "\\\"";
    else if (scalar == '\\') replacement = "\\\\";
    else snprintf(escape, sizeof escape, "\\u%04x", (unsigned)scalar);
    append(to, replacement, strlen(replacement));
  }
  append(to, text + start, length - start);
  append(to, "\"", 1);
}
