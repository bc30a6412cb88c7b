// A Toolhold module: one tool. Replace it with yours; README.md says how to build and try it.
//
// Every call is a fresh instance: memory need not be freed, and nothing that a call leaves in a
// variable is there for the next one.
#include <stdlib.h>
#include <string.h>

#include "toolhold.h"

typedef struct {
  char *text;
  size_t length;
  size_t count;
} word;

static bool in_word(unsigned char c) {
  // A byte of a letter beyond ASCII counts as a letter.
  return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int by_text(const void *left, const void *right) {
  const word *a = left, *b = right;
  int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
  return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int by_count(const void *left, const void *right) {
  const word *a = left, *b = right;
  return a->count == b->count ? by_text(a, b) : a->count < b->count ? 1 : -1;
}

// Lower case, for ASCII.
static void lower(char *text, size_t length) {
  for (size_t index = 0; index < length; index++)
    if (text[index] >= 'A' && text[index] <= 'Z') text[index] += 'a' - 'A';
}

// Every word of the text in its order; returns how many there are.
static size_t split(char *text, size_t length, word *words) {
  size_t found = 0;
  for (size_t at = 0; at < length;) {
    size_t start = at;
    while (at < length && (in_word(text[at]) || (text[at] == '\'' && at > start && at + 1 < length && in_word(text[at + 1]))))
      at++;
    if (at > start) words[found++] = (word){text + start, at - start, 1};
    else at++;
  }
  return found;
}

// Joins equal words; returns how many different ones there are.
static size_t merge(word *words, size_t found) {
  qsort(words, found, sizeof *words, by_text);
  size_t distinct = 0;
  for (size_t index = 0; index < found; index++) {
    if (distinct && by_text(&words[distinct - 1], &words[index]) == 0) words[distinct - 1].count++;
    else words[distinct++] = words[index];
  }
  return distinct;
}

static bool word_frequency(const json *arguments, toolhold_result *result) {
  const json *text = json_get(arguments, "text");
  int64_t top = json_integer_or(arguments, "top", 10);
  if (!text || text->type != JSON_STRING) return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`text` must be a string");
  if (top < 1 || top > 1000) return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`top` must be between 1 and 1000");

  char *copy = json_allocate(NULL, text->length + 1);
  memcpy(copy, text->text, text->length);
  lower(copy, text->length);
  word *words = json_allocate(NULL, (text->length / 2 + 1) * sizeof *words);
  size_t distinct = merge(words, split(copy, text->length, words));
  qsort(words, distinct, sizeof *words, by_count);

  json_writer *to = &result->output;
  json_begin(to, '{');
  json_key(to, "words");
  json_begin(to, '[');
  for (size_t index = 0; index < distinct && index < (size_t)top; index++) {
    json_begin(to, '{');
    json_key(to, "word");
    json_string(to, words[index].text, words[index].length);
    json_key(to, "count");
    json_integer(to, (int64_t)words[index].count);
    json_end(to, '}');
  }
  json_end(to, ']');
  json_key(to, "distinct");
  json_integer(to, (int64_t)distinct);
  json_end(to, '}');
  return true;
}

static const toolhold_example examples[] = {{
    .task = "Which word is most frequent in: to be or not to be, to",
    .arguments = "{\"text\":\"to be or not to be, to\",\"top\":1}",
    .output = "{\"words\":[{\"word\":\"to\",\"count\":3}],\"distinct\":4}",
    .answer = "The most frequent word is \"to\": it occurs 3 times.",
}};

// Descriptions are for the model: it chooses and fills the tool by them.
const toolhold_tool toolhold_tools[] = {{
    .name = "word_frequency",
    .title = "Word frequency",
    .description = "Counts how often each word occurs in a text and returns the most frequent ones.",
    .input_schema =
        "{\"type\":\"object\",\"properties\":{"
        "\"text\":{\"type\":\"string\",\"description\":\"The text to count in.\"},"
        "\"top\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,"
        "\"description\":\"How many words to return (10 if not given).\"}},"
        "\"required\":[\"text\"],\"additionalProperties\":false}",
    .output_schema =
        "{\"type\":\"object\",\"properties\":{"
        "\"words\":{\"type\":\"array\",\"description\":\"The most frequent words, most frequent first.\","
        "\"items\":{\"type\":\"object\",\"properties\":{\"word\":{\"type\":\"string\"},\"count\":{\"type\":\"integer\"}},"
        "\"required\":[\"word\",\"count\"]}},"
        "\"distinct\":{\"type\":\"integer\",\"description\":\"How many different words there are.\"}},"
        "\"required\":[\"words\",\"distinct\"]}",
    .annotations = TOOLHOLD_READ_ONLY | TOOLHOLD_IDEMPOTENT,
    .examples = examples,
    .example_count = 1,
    .run = word_frequency,
}};
const size_t toolhold_tool_count = sizeof toolhold_tools / sizeof *toolhold_tools;
