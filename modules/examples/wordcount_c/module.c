// The word count of `modules/examples`, in C: one pass over the text.
#include "toolhold.h"

// The property White_Space of Unicode.
static bool is_space(uint32_t scalar) {
  return (scalar >= 0x09 && scalar <= 0x0D) || scalar == 0x20 || scalar == 0x85 || scalar == 0xA0 || scalar == 0x1680 ||
         (scalar >= 0x2000 && scalar <= 0x200A) || scalar == 0x2028 || scalar == 0x2029 || scalar == 0x202F ||
         scalar == 0x205F || scalar == 0x3000;
}

static bool count(const json *arguments, toolhold_result *result) {
  const json *text = json_get(arguments, "text");
  if (!text || text->type != JSON_STRING) return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`text` must be a string");

  int64_t words = 0, lines = 0, characters = 0;
  size_t start = 0, letters = 0;                            // of the word under way
  size_t longest = 0, longest_bytes = 0, longest_letters = 0;  // of the longest so far
  bool line_open = false;
  for (size_t at = 0; at < text->length;) {
    size_t before = at;
    uint32_t scalar = utf8_next(text->text, text->length, &at);
    characters++;
    line_open = scalar != '\n';
    if (!line_open) lines++;
    if (is_space(scalar)) {
      letters = 0;
      continue;
    }
    if (letters++ == 0) {
      words++;
      start = before;
    }
    if (letters > longest_letters) {
      longest = start;
      longest_bytes = at - start;
      longest_letters = letters;
    }
  }

  json_writer *to = &result->output;
  json_begin(to, '{');
  json_key(to, "words");
  json_integer(to, words);
  json_key(to, "lines");
  json_integer(to, lines + line_open);
  json_key(to, "characters");
  json_integer(to, characters);
  json_key(to, "longest");
  json_string(to, text->text + longest, longest_bytes);
  json_end(to, '}');
  return true;
}

static const toolhold_example examples[] = {{
    .task = "How many words are in: the quick brown fox",
    .arguments = "{\"text\":\"the quick brown fox\"}",
    .output = "{\"words\":4,\"lines\":1,\"characters\":19,\"longest\":\"quick\"}",
    .answer = "There are 4 words.",
}};

const toolhold_tool toolhold_tools[] = {{
    .name = "count",
    .title = "Count words",
    .description = "Counts the words, lines and characters of a text and finds its longest word. Use it instead of "
                   "counting by eye.",
    .input_schema =
        "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"description\":\"The text to count in.\"}},"
        "\"required\":[\"text\"],\"additionalProperties\":false}",
    .output_schema =
        "{\"type\":\"object\",\"properties\":{\"words\":{\"type\":\"integer\"},\"lines\":{\"type\":\"integer\"},"
        "\"characters\":{\"type\":\"integer\"},\"longest\":{\"type\":\"string\"}},"
        "\"required\":[\"words\",\"lines\",\"characters\",\"longest\"]}",
    .annotations = TOOLHOLD_READ_ONLY | TOOLHOLD_IDEMPOTENT,
    .examples = examples,
    .example_count = 1,
    .run = count,
}};
const size_t toolhold_tool_count = 1;
