// Types that an author would write, beyond the template's.
#include <stdio.h>

#include "toolhold.h"

static const char *const colors[] = {"red", "green", NULL};

typedef struct {
  double amount;
  toolhold_text currency;
} money;
TOOLHOLD_RECORD(money, TOOLHOLD_FIELD(money, amount, .minimum = 0.5), TOOLHOLD_FIELD(money, currency));

typedef struct {
  int64_t id;
  toolhold_text from_date;
  toolhold_list tags;
  toolhold_list numbers;
  money price;
} row;
TOOLHOLD_RECORD(row,
    TOOLHOLD_FIELD(row, id, .minimum = -5, .maximum = 5),
    TOOLHOLD_FIELD(row, from_date, .name = "from-date", .is_optional = true, .description = "A \"date\"."),
    TOOLHOLD_FIELD(row, tags, .of = &toolhold_text_type, .values = colors, .is_optional = true),
    TOOLHOLD_FIELD(row, numbers, .of = &toolhold_number_type, .is_optional = true),
    TOOLHOLD_RECORD_FIELD(row, price, money, .description = "What it costs."));

typedef struct {
  toolhold_list rows;
  bool is_strict;
} arguments;
TOOLHOLD_RECORD(arguments,
    TOOLHOLD_FIELD(arguments, rows, .of = &row_type),
    TOOLHOLD_FIELD(arguments, is_strict, .is_optional = true));

typedef struct {
  int64_t count;
  row first;
} result;
TOOLHOLD_RECORD(result, TOOLHOLD_FIELD(result, count), TOOLHOLD_RECORD_FIELD(result, first, row));

static bool add(const void *given, void *returned, toolhold_result *failure) {
  const arguments *asked = given;
  result *sum = returned;
  if (asked->rows.length == 0) return toolhold_fail(failure, TOOLHOLD_CORRECTABLE, "give a row");
  *sum = (result){(int64_t)asked->rows.length, ((const row *)asked->rows.items)[0]};
  return true;
}

const toolhold_tool toolhold_tools[] = {{
    .name = "add",
    .description = "Adds rows up.",
    .arguments = &arguments_type,
    .result = &result_type,
    .call = add,
}};
const size_t toolhold_tool_count = 1;
