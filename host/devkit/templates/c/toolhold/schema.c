#include "schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const toolhold_type toolhold_text_type = {.size = sizeof(toolhold_text), .kind = TOOLHOLD_TEXT};
const toolhold_type toolhold_boolean_type = {.size = sizeof(bool), .kind = TOOLHOLD_BOOLEAN};
const toolhold_type toolhold_integer_type = {.size = sizeof(int64_t), .kind = TOOLHOLD_INTEGER};
const toolhold_type toolhold_number_type = {.size = sizeof(double), .kind = TOOLHOLD_NUMBER};

static const char *const kinds[] = {"string", "boolean", "integer", "number", "array", "object"};

toolhold_text toolhold_text_of(const char *bytes) { return (toolhold_text){bytes, strlen(bytes)}; }

static void write_text(json_writer *to, const char *key, const char *text) {
  json_key(to, key);
  json_string(to, text, strlen(text));
}

static void write_type(const toolhold_type *type, json_writer *to);

static bool has_minimum(const toolhold_field *field) {
  return field->minimum < field->maximum || (field->minimum > 0 && field->maximum == 0);
}

static bool has_maximum(const toolhold_field *field) { return field->minimum < field->maximum; }

static void write_values(const toolhold_field *field, json_writer *to) {
  if (!field->values) return;
  json_key(to, "enum");
  json_begin(to, '[');
  for (const char *const *value = field->values; *value; value++) json_string(to, *value, strlen(*value));
  json_end(to, ']');
}

// What lists and records are of: without it, there is no schema.
static void require_type(const toolhold_field *field) {
  bool is_plain = field->kind != TOOLHOLD_LIST && field->kind != TOOLHOLD_OBJECT;
  if (is_plain || (field->of && field->of->kind != TOOLHOLD_LIST)) return;
  fprintf(stderr, "the field `%s` needs `.of`, a type that is no list itself\n", field->name);
  abort();
}

// The keywords of a field beside its type.
static void write_field(const toolhold_field *field, json_writer *to) {
  require_type(field);
  json_key(to, field->name);
  json_begin(to, '{');
  if (field->kind == TOOLHOLD_OBJECT) {
    write_type(field->of, to);
  } else {
    write_text(to, "type", kinds[field->kind]);
  }
  if (field->kind == TOOLHOLD_LIST) {
    json_key(to, "items");
    json_begin(to, '{');
    write_type(field->of, to);
    write_values(field, to);
    json_end(to, '}');
  }
  if (has_minimum(field)) {
    json_key(to, "minimum");
    json_number(to, field->minimum);
  }
  if (has_maximum(field)) {
    json_key(to, "maximum");
    json_number(to, field->maximum);
  }
  if (field->kind == TOOLHOLD_TEXT) write_values(field, to);
  if (field->description) write_text(to, "description", field->description);
  json_end(to, '}');
}

// The keywords of a type, within an object that the caller begins and ends.
static void write_type(const toolhold_type *type, json_writer *to) {
  write_text(to, "type", kinds[type->kind]);
  if (type->kind != TOOLHOLD_OBJECT) return;
  json_key(to, "properties");
  json_begin(to, '{');
  for (size_t index = 0; index < type->field_count; index++) write_field(&type->fields[index], to);
  json_end(to, '}');
  json_key(to, "required");
  json_begin(to, '[');
  for (size_t index = 0; index < type->field_count; index++) {
    const toolhold_field *field = &type->fields[index];
    if (!field->is_optional) json_string(to, field->name, strlen(field->name));
  }
  json_end(to, ']');
  json_key(to, "additionalProperties");
  json_boolean(to, false);
}

const char *toolhold_schema(const toolhold_type *type) {
  json_writer to = {0};
  json_begin(&to, '{');
  write_type(type, &to);
  json_end(&to, '}');
  char *text = json_allocate(to.text, to.length + 1);
  text[to.length] = 0;
  return text;
}

static bool misfit(const char **message, const char *name, const char *wanted) {
  char *text;
  if (asprintf(&text, "`%s` %s", name, wanted) < 0) abort();
  *message = text;
  return false;
}

static bool read_record(const toolhold_type *type, const json *from, void *to, const char *name, const char **message);

static bool read_plain(toolhold_kind kind, const json *from, void *to) {
  switch (kind) {
    case TOOLHOLD_TEXT:
      *(toolhold_text *)to = (toolhold_text){from->text, from->length};
      return from->type == JSON_STRING;
    case TOOLHOLD_BOOLEAN:
      *(bool *)to = from->boolean;
      return from->type == JSON_BOOLEAN;
    case TOOLHOLD_INTEGER:
      *(int64_t *)to = from->integer;
      if (from->type == JSON_NUMBER && from->number >= -0x1p63 && from->number < 0x1p63) {
        // 1.0 is an integer of JSON Schema.
        *(int64_t *)to = (int64_t)from->number;
        return (double)*(int64_t *)to == from->number;
      }
      return from->type == JSON_INTEGER;
    case TOOLHOLD_NUMBER:
      *(double *)to = from->number;
      return from->type == JSON_NUMBER || from->type == JSON_INTEGER;
    case TOOLHOLD_LIST:
    case TOOLHOLD_OBJECT:
      break;
  }
  return false;
}

static bool read_item(const toolhold_type *type, const json *from, void *to, const char *name, const char **message) {
  if (type->kind == TOOLHOLD_OBJECT) return read_record(type, from, to, name, message);
  return read_plain(type->kind, from, to) || misfit(message, name, "has an item of another type than it may have");
}

static bool is_allowed(const toolhold_field *field, const toolhold_text *text) {
  if (!field->values) return true;
  for (const char *const *value = field->values; *value; value++)
    if (strlen(*value) == text->length && !memcmp(*value, text->bytes, text->length)) return true;
  return false;
}

static bool read_list(const toolhold_field *field, const json *from, toolhold_list *to, const char **message) {
  if (from->type != JSON_ARRAY) return misfit(message, field->name, "must be of type array");
  to->length = from->length;
  to->items = json_allocate(NULL, from->length * field->of->size);
  memset(to->items, 0, from->length * field->of->size);
  char *item = to->items;
  for (const json *child = from->first; child; child = child->next, item += field->of->size) {
    if (!read_item(field->of, child, item, field->name, message)) return false;
    if (field->of->kind == TOOLHOLD_TEXT && !is_allowed(field, (const toolhold_text *)item))
      return misfit(message, field->name, "has an item that is none of the values that it may be");
  }
  return true;
}

static bool read_field(const toolhold_field *field, const json *from, void *to, const char **message) {
  if (field->kind == TOOLHOLD_LIST) return read_list(field, from, to, message);
  if (field->kind == TOOLHOLD_OBJECT) return read_record(field->of, from, to, field->name, message);
  if (!read_plain(field->kind, from, to)) {
    char wanted[40];
    snprintf(wanted, sizeof wanted, "must be of type %s", kinds[field->kind]);
    return misfit(message, field->name, wanted);
  }
  bool is_number = field->kind == TOOLHOLD_INTEGER || field->kind == TOOLHOLD_NUMBER;
  char wanted[80];
  if (is_number && has_minimum(field) && from->number < field->minimum) {
    snprintf(wanted, sizeof wanted, "must be at least %g", field->minimum);
    return misfit(message, field->name, wanted);
  }
  if (is_number && has_maximum(field) && from->number > field->maximum) {
    snprintf(wanted, sizeof wanted, "must be at most %g", field->maximum);
    return misfit(message, field->name, wanted);
  }
  if (field->kind == TOOLHOLD_TEXT && !is_allowed(field, to))
    return misfit(message, field->name, "is none of the values that it may be");
  return true;
}

static bool read_record(const toolhold_type *type, const json *from, void *to, const char *name, const char **message) {
  if (from->type != JSON_OBJECT) return misfit(message, name, "must be of type object");
  size_t known = 0;
  for (size_t index = 0; index < type->field_count; index++) {
    const toolhold_field *field = &type->fields[index];
    const json *member = json_get(from, field->name);
    if (!member && !field->is_optional) return misfit(message, field->name, "is missing");
    if (member && !read_field(field, member, (char *)to + field->offset, message)) return false;
    known += member != NULL;
  }
  return known == from->length || misfit(message, name, "has a member that is not known");
}

bool toolhold_read(const toolhold_type *type, const json *from, void *to, const char **message) {
  return read_item(type, from, to, "the arguments", message);
}

static void write_plain(toolhold_kind kind, const void *from, json_writer *to) {
  const toolhold_text *text = from;
  switch (kind) {
    case TOOLHOLD_TEXT:
      json_string(to, text->bytes, text->length);
      break;
    case TOOLHOLD_BOOLEAN:
      json_boolean(to, *(const bool *)from);
      break;
    case TOOLHOLD_INTEGER:
      json_integer(to, *(const int64_t *)from);
      break;
    case TOOLHOLD_NUMBER:
      json_number(to, *(const double *)from);
      break;
    case TOOLHOLD_LIST:
    case TOOLHOLD_OBJECT:
      break;
  }
}

static void write_list(const toolhold_field *field, const toolhold_list *from, json_writer *to) {
  json_begin(to, '[');
  for (size_t index = 0; index < from->length; index++)
    toolhold_write(field->of, (const char *)from->items + index * field->of->size, to);
  json_end(to, ']');
}

// An optional text or list without memory of its own is left out.
static bool is_absent(const toolhold_field *field, const void *member) {
  if (!field->is_optional) return false;
  if (field->kind == TOOLHOLD_TEXT) return !((const toolhold_text *)member)->bytes;
  return field->kind == TOOLHOLD_LIST && !((const toolhold_list *)member)->items;
}

void toolhold_write(const toolhold_type *type, const void *from, json_writer *to) {
  if (type->kind != TOOLHOLD_OBJECT) {
    write_plain(type->kind, from, to);
    return;
  }
  json_begin(to, '{');
  for (size_t index = 0; index < type->field_count; index++) {
    const toolhold_field *field = &type->fields[index];
    const void *member = (const char *)from + field->offset;
    if (is_absent(field, member)) continue;
    json_key(to, field->name);
    if (field->kind == TOOLHOLD_LIST) write_list(field, member, to);
    else if (field->kind == TOOLHOLD_OBJECT) toolhold_write(field->of, member, to);
    else write_plain(field->kind, member, to);
  }
  json_end(to, '}');
}
