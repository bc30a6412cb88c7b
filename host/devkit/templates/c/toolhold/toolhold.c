#include "toolhold.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The generated code asks for the object file that carries the world's type. There is none:
// `toolhold build` adds the type itself.
void __component_type_object_force_link_tool_module(void) {}

bool toolhold_fail(toolhold_result *result, toolhold_class class_, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (vasprintf(&result->message, format, arguments) < 0) abort();
  va_end(arguments);
  result->class_ = class_;
  return false;
}

// What goes to the host is freed after the host has read it, so it is always a copy.
static tool_module_string_t copy(const char *text) {
  tool_module_string_t string;
  tool_module_string_dup(&string, text);
  return string;
}

static toolhold_module_types_example_t describe_example(const toolhold_example *example) {
  return (toolhold_module_types_example_t){
      .task = copy(example->task),
      .arguments = copy(example->arguments),
      .output = copy(example->output),
      .answer = copy(example->answer),
  };
}

static toolhold_module_types_tool_t describe(const toolhold_tool *tool) {
  const char *input_schema = tool->arguments ? toolhold_schema(tool->arguments) : tool->input_schema;
  const char *output_schema = tool->result ? toolhold_schema(tool->result) : tool->output_schema;
  toolhold_module_types_tool_t described = {
      .name = copy(tool->name),
      .title = {.is_some = tool->title != NULL},
      .description = copy(tool->description),
      .input_schema = copy(input_schema),
      .output_schema = {.is_some = output_schema != NULL},
      .annotations = tool->annotations,
      .examples.len = tool->example_count,
  };
  if (tool->title) described.title.val = copy(tool->title);
  if (output_schema) described.output_schema.val = copy(output_schema);
  described.examples.ptr = json_allocate(NULL, tool->example_count * sizeof *described.examples.ptr);
  for (size_t index = 0; index < tool->example_count; index++)
    described.examples.ptr[index] = describe_example(&tool->examples[index]);
  return described;
}

void exports_toolhold_module_tools_list_tools(exports_toolhold_module_tools_list_tool_t *tools) {
  tools->len = toolhold_tool_count;
  tools->ptr = json_allocate(NULL, toolhold_tool_count * sizeof *tools->ptr);
  for (size_t index = 0; index < toolhold_tool_count; index++) tools->ptr[index] = describe(&toolhold_tools[index]);
}

static const toolhold_tool *find(const tool_module_string_t *name) {
  for (size_t index = 0; index < toolhold_tool_count; index++) {
    const toolhold_tool *tool = &toolhold_tools[index];
    if (strlen(tool->name) == name->len && !memcmp(tool->name, name->ptr, name->len)) return tool;
  }
  return NULL;
}

static bool call_typed(const toolhold_tool *tool, const json *given, toolhold_result *result) {
  void *arguments = json_allocate(NULL, tool->arguments->size);
  memset(arguments, 0, tool->arguments->size);
  void *returned = json_allocate(NULL, tool->result->size);
  memset(returned, 0, tool->result->size);
  const char *misfit;
  if (!toolhold_read(tool->arguments, given, arguments, &misfit))
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "the arguments do not fit %s: %s", tool->name, misfit);
  if (!tool->call(arguments, returned, result)) return false;
  toolhold_write(tool->result, returned, &result->output);
  return true;
}

static bool run(const exports_toolhold_module_tools_invocation_t *invocation, toolhold_result *result) {
  const toolhold_tool *tool = find(&invocation->tool);
  if (!tool)
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "no tool `%.*s` here", (int)invocation->tool.len,
                         (const char *)invocation->tool.ptr);
  const json *arguments = json_parse((const char *)invocation->arguments.ptr, invocation->arguments.len);
  if (!arguments) return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "the arguments are not JSON");
  return tool->call ? call_typed(tool, arguments, result) : tool->run(arguments, result);
}

bool exports_toolhold_module_tools_call(exports_toolhold_module_tools_invocation_t *invocation,
                                        exports_toolhold_module_tools_output_t *output,
                                        exports_toolhold_module_tools_tool_error_t *error) {
  toolhold_result result = {0};
  if (run(invocation, &result)) {
    output->tag = TOOLHOLD_MODULE_TYPES_OUTPUT_VALUE;
    output->val.value = (tool_module_string_t){(uint8_t *)result.output.text, result.output.length};
    return true;
  }
  error->class_ = result.class_;
  error->message = copy(result.message ? result.message : "the tool failed without a reason");
  error->data.is_some = false;
  return false;
}
