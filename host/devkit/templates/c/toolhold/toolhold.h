// Write a Toolhold tool module in C: a table of tools, each with a description and a function.
// This folder is yours to change; `tool_module.c` and `.h` are what `wit-bindgen c` 0.63 makes of
// wit/toolhold.wit (`wit-bindgen c wit --world tool-module --no-object-file`).
#ifndef TOOLHOLD_H
#define TOOLHOLD_H

#include "json.h"
#include "schema.h"
#include "tool_module.h"

// What a tool does to the world: by it the host decides whether to ask a person.
#define TOOLHOLD_READ_ONLY TOOLHOLD_MODULE_TYPES_ANNOTATIONS_READ_ONLY
#define TOOLHOLD_IDEMPOTENT TOOLHOLD_MODULE_TYPES_ANNOTATIONS_IDEMPOTENT
#define TOOLHOLD_DESTRUCTIVE TOOLHOLD_MODULE_TYPES_ANNOTATIONS_DESTRUCTIVE
#define TOOLHOLD_OPEN_WORLD TOOLHOLD_MODULE_TYPES_ANNOTATIONS_OPEN_WORLD

// Whose move it is after an error.
typedef enum {
  TOOLHOLD_CORRECTABLE = TOOLHOLD_MODULE_TYPES_ERROR_CLASS_CORRECTABLE,  // the model's: say how
  TOOLHOLD_RETRYABLE = TOOLHOLD_MODULE_TYPES_ERROR_CLASS_RETRYABLE,      // the same call, later
  TOOLHOLD_FATAL = TOOLHOLD_MODULE_TYPES_ERROR_CLASS_FATAL,              // the operator's
} toolhold_class;

// Where a tool writes what it returns.
typedef struct {
  json_writer output;  // exactly one value, if the tool succeeds
  toolhold_class class_;
  char *message;
} toolhold_result;

// A worked example; small models choose and fill tools by imitation. Arguments and output are JSON.
typedef struct {
  const char *task;
  const char *arguments;
  const char *output;
  const char *answer;
} toolhold_example;

typedef struct {
  const char *name;
  const char *title;
  const char *description;
  // The types of the arguments and of the result (schema.h), of which `call` is given structs.
  const toolhold_type *arguments;
  const toolhold_type *result;
  // `result` is written if it returns true. False: it failed, see toolhold_fail.
  bool (*call)(const void *arguments, void *result, toolhold_result *failure);
  // Instead of the three: schemas as JSON, of which the output's may be NULL, and a function over JSON. The host has
  // checked the arguments against the schema.
  const char *input_schema;
  const char *output_schema;
  bool (*run)(const json *arguments, toolhold_result *result);
  uint8_t annotations;
  const toolhold_example *examples;
  size_t example_count;
} toolhold_tool;

// What the module offers; the module defines both.
extern const toolhold_tool toolhold_tools[];
extern const size_t toolhold_tool_count;

// Sets the error, in words for the model, and returns false: `return toolhold_fail(result, …)`.
__attribute__((format(printf, 3, 4)))
bool toolhold_fail(toolhold_result *result, toolhold_class class_, const char *format, ...);

#endif
