// Typed tools in C: a table of a struct's fields, from which the schema is made, arguments are read and results are
// written.
//
//   typedef struct { toolhold_text text; int64_t top; } arguments;
//   TOOLHOLD_RECORD(arguments,
//       TOOLHOLD_FIELD(arguments, text, .description = "The text to count in."),
//       TOOLHOLD_FIELD(arguments, top, .is_optional = true, .minimum = 1, .maximum = 1000));
//
// The type of a field is that of the struct's member, and the compiler refuses a member of another type. A member that
// is a struct itself is a TOOLHOLD_RECORD_FIELD. A name that C has no member of is given: `.name = "from-date"`.
#ifndef TOOLHOLD_SCHEMA_H
#define TOOLHOLD_SCHEMA_H

#include "json.h"

// A string: UTF-8, may contain zeros; what is read is also zero-terminated.
typedef struct {
  const char *bytes;
  size_t length;
} toolhold_text;

// A list of what its field's `.of` says: texts, numbers or records, one after the other.
typedef struct {
  void *items;
  size_t length;
} toolhold_list;

typedef enum {
  TOOLHOLD_TEXT,
  TOOLHOLD_BOOLEAN,
  TOOLHOLD_INTEGER,
  TOOLHOLD_NUMBER,
  TOOLHOLD_LIST,
  TOOLHOLD_OBJECT,
} toolhold_kind;

typedef struct toolhold_type toolhold_type;

typedef struct {
  const char *name;
  size_t offset;
  toolhold_kind kind;
  const char *description;
  // May be left out, and is zero then. In a result a text without `bytes` and a list without `items` are left out.
  bool is_optional;
  // For numbers, where they differ: `minimum` up to `maximum`, or from a `minimum` above 0 where `maximum` is 0.
  double minimum, maximum;
  // For texts and lists of texts, up to the first NULL: the values that are allowed.
  const char *const *values;
  // For lists, what is in it; for records, its type.
  const toolhold_type *of;
} toolhold_field;

// What a list has, or the arguments or the result of a tool: a record, or a text, a number, a boolean.
struct toolhold_type {
  size_t size;
  toolhold_kind kind;
  const toolhold_field *fields;  // of a record
  size_t field_count;
};

extern const toolhold_type toolhold_text_type, toolhold_boolean_type, toolhold_integer_type, toolhold_number_type;

#define TOOLHOLD_KIND(member)     \
  _Generic((member),              \
      toolhold_text: TOOLHOLD_TEXT, \
      bool: TOOLHOLD_BOOLEAN,     \
      int64_t: TOOLHOLD_INTEGER,  \
      double: TOOLHOLD_NUMBER,    \
      toolhold_list: TOOLHOLD_LIST)

#define TOOLHOLD_FIELD(record, member, ...) \
  {.name = #member, .offset = offsetof(record, member), .kind = TOOLHOLD_KIND(((record *)0)->member), __VA_ARGS__}

// A member that is a record, by the name of its struct.
#define TOOLHOLD_RECORD_FIELD(record, member, type, ...) \
  {.name = #member, .offset = offsetof(record, member), .kind = TOOLHOLD_OBJECT, .of = &type##_type, __VA_ARGS__}

// Defines `NAME_type`, the type of the struct NAME with these fields.
#define TOOLHOLD_RECORD(record, ...)                              \
  static const toolhold_field record##_fields[] = {__VA_ARGS__};  \
  static const toolhold_type record##_type = {                    \
      .size = sizeof(record),                                     \
      .kind = TOOLHOLD_OBJECT,                                    \
      .fields = record##_fields,                                  \
      .field_count = sizeof record##_fields / sizeof *record##_fields}

// A text of C. The bytes are not copied.
toolhold_text toolhold_text_of(const char *bytes);

// The JSON Schema of a type, zero-terminated.
const char *toolhold_schema(const toolhold_type *type);

// Reads `from` into a struct of zeros; false, and what does not fit in `message`, if it is not of the type.
bool toolhold_read(const toolhold_type *type, const json *from, void *to, const char **message);

void toolhold_write(const toolhold_type *type, const void *from, json_writer *to);

#endif
