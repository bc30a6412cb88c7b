// A Toolhold module: one tool. Replace it with yours; README.md says how to build and try it.
//
// Every call is a fresh instance: memory need not be freed, and nothing that a call leaves in a
// variable is there for the next one.
#include <stdlib.h>
#include <string.h>

#include "toolhold.h"

// The arguments and the result: their tables become the schemas.
typedef struct {
  toolhold_text text;
  int64_t top;
} arguments;
TOOLHOLD_RECORD(arguments,
    TOOLHOLD_FIELD(arguments, text, .description = "The text to count in."),
    TOOLHOLD_FIELD(arguments, top, .is_optional = true, .minimum = 1, .maximum = 1000,
                   .description = "How many words to return (10 if not given)."));

typedef struct {
  toolhold_text word;
  int64_t count;
} frequency;
TOOLHOLD_RECORD(frequency, TOOLHOLD_FIELD(frequency, word), TOOLHOLD_FIELD(frequency, count));

typedef struct {
  toolhold_list words;
  int64_t distinct;
} frequencies;
TOOLHOLD_RECORD(frequencies,
    TOOLHOLD_FIELD(frequencies, words, .of = &frequency_type,
                   .description = "The most frequent words, most frequent first."),
    TOOLHOLD_FIELD(frequencies, distinct, .description = "How many different words there are."));

static bool in_word(unsigned char c) {
  // A byte of a letter beyond ASCII counts as a letter.
  return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int by_text(const void *left, const void *right) {
  const toolhold_text *a = &((const frequency *)left)->word, *b = &((const frequency *)right)->word;
  int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
  return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int by_count(const void *left, const void *right) {
  const frequency *a = left, *b = right;
  return a->count == b->count ? by_text(a, b) : a->count < b->count ? 1 : -1;
}

// Lower case, for ASCII.
static void lower(char *text, size_t length) {
  for (size_t index = 0; index < length; index++)
    if (text[index] >= 'A' && text[index] <= 'Z') text[index] += 'a' - 'A';
}

// Every word of the text in its order; returns how many there are.
static size_t split(char *text, size_t length, frequency *words) {
  size_t found = 0;
  for (size_t at = 0; at < length;) {
    size_t start = at;
    while (at < length && (in_word(text[at]) || (text[at] == '\'' && at > start && at + 1 < length && in_word(text[at + 1]))))
      at++;
    if (at > start) words[found++] = (frequency){.word = {text + start, at - start}, .count = 1};
    else at++;
  }
  return found;
}

// Joins equal words; returns how many different ones there are.
static size_t merge(frequency *words, size_t found) {
  qsort(words, found, sizeof *words, by_text);
  size_t distinct = 0;
  for (size_t index = 0; index < found; index++) {
    if (distinct && by_text(&words[distinct - 1], &words[index]) == 0) words[distinct - 1].count++;
    else words[distinct++] = words[index];
  }
  return distinct;
}

static bool word_frequency(const void *given, void *returned, toolhold_result *failure) {
  const arguments *asked = given;
  frequencies *result = returned;
  (void)failure;  // `return toolhold_fail(failure, TOOLHOLD_CORRECTABLE, "…")` says why there is no result
  toolhold_text text = asked->text;
  size_t top = asked->top ? (size_t)asked->top : 10;

  char *copy = json_allocate(NULL, text.length + 1);
  memcpy(copy, text.bytes, text.length);
  lower(copy, text.length);
  frequency *words = json_allocate(NULL, (text.length / 2 + 1) * sizeof *words);
  size_t distinct = merge(words, split(copy, text.length, words));
  qsort(words, distinct, sizeof *words, by_count);
  result->words = (toolhold_list){words, distinct < top ? distinct : top};
  result->distinct = (int64_t)distinct;
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
    .arguments = &arguments_type,
    .result = &frequencies_type,
    .call = word_frequency,
    .annotations = TOOLHOLD_READ_ONLY | TOOLHOLD_IDEMPOTENT,
    .examples = examples,
    .example_count = 1,
}};
const size_t toolhold_tool_count = sizeof toolhold_tools / sizeof *toolhold_tools;
