// Runs SQL: every statement in order, in one transaction; the rows of the last one that has columns are the result.
#include <string.h>

#include "database.h"
#include "tools.h"

#define DEFAULT_ROWS 100
#define MAX_ROWS 1000
// Of a result, and of one value in it: a part of a model's context.
#define MAX_OUTPUT (256 << 10)
#define MAX_CELL (16 << 10)

typedef struct {
  json_writer rows;
  json_writer columns;
  int64_t count;
  bool truncated;
} table;

static void write_base64(json_writer *to, const unsigned char *bytes, size_t length) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *text = json_allocate(NULL, (length + 2) / 3 * 4), *at = text;
  for (size_t index = 0; index < length; index += 3) {
    size_t left = length - index;
    uint32_t group = (uint32_t)bytes[index] << 16 | (left > 1 ? bytes[index + 1] << 8 : 0) | (left > 2 ? bytes[index + 2] : 0);
    *at++ = digits[group >> 18];
    *at++ = digits[group >> 12 & 63];
    *at++ = left > 1 ? digits[group >> 6 & 63] : '=';
    *at++ = left > 2 ? digits[group & 63] : '=';
  }
  json_string(to, text, (size_t)(at - text));
}

static void write_cell(table *to, sqlite3_stmt *statement, int column) {
  size_t length = (size_t)sqlite3_column_bytes(statement, column);
  size_t shown = length > MAX_CELL ? MAX_CELL : length;
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      json_integer(&to->rows, sqlite3_column_int64(statement, column));
      return;
    case SQLITE_FLOAT:
      json_number(&to->rows, sqlite3_column_double(statement, column));
      return;
    case SQLITE_NULL:
      json_null(&to->rows);
      return;
    case SQLITE_TEXT: {
      const char *text = (const char *)sqlite3_column_text(statement, column);
      // Not within a character.
      while (shown < length && shown && (text[shown] & 0xC0) == 0x80) shown--;
      json_string(&to->rows, text, shown);
      break;
    }
    default:
      json_begin(&to->rows, '{');
      json_key(&to->rows, "base64");
      write_base64(&to->rows, sqlite3_column_blob(statement, column), shown);
      json_end(&to->rows, '}');
  }
  to->truncated |= shown < length;
}

static table new_table(sqlite3_stmt *statement) {
  table fresh = {0};
  json_begin(&fresh.rows, '[');
  json_begin(&fresh.columns, '[');
  for (int column = 0; statement && column < sqlite3_column_count(statement); column++) {
    const char *name = sqlite3_column_name(statement, column);
    json_string(&fresh.columns, name, strlen(name));
  }
  return fresh;
}

static bool bind(sqlite3 *database, sqlite3_stmt *statement, const json *parameters, toolhold_result *result) {
  int wanted = sqlite3_bind_parameter_count(statement), index = 0;
  if (!wanted) return true;
  if (!parameters || parameters->length != (size_t)wanted)
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "the statement has %d placeholders and `parameters` has %d values",
                         wanted, parameters ? (int)parameters->length : 0);
  for (const json *value = parameters->first; value; value = value->next) {
    int code;
    index++;
    switch (value->type) {
      case JSON_NULL: code = sqlite3_bind_null(statement, index); break;
      case JSON_BOOLEAN: code = sqlite3_bind_int(statement, index, value->boolean); break;
      case JSON_INTEGER: code = sqlite3_bind_int64(statement, index, value->integer); break;
      case JSON_NUMBER: code = sqlite3_bind_double(statement, index, value->number); break;
      case JSON_STRING: code = sqlite3_bind_text64(statement, index, value->text, value->length, SQLITE_STATIC, SQLITE_UTF8); break;
      default: return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "parameter %d is neither null, boolean, number nor string", index);
    }
    if (code != SQLITE_OK) return database_failed(database, code, result);
  }
  return true;
}

// Runs one statement to its end, also where its rows are no longer kept: it may change something.
static int run(sqlite3_stmt *statement, table *to, int64_t max_rows) {
  int code;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    if (to->count >= max_rows || to->rows.length > MAX_OUTPUT) {
      to->truncated = true;
      // A query has nothing left to do.
      if (sqlite3_stmt_readonly(statement)) return SQLITE_DONE;
      continue;
    }
    to->count++;
    json_begin(&to->rows, '[');
    for (int column = 0; column < sqlite3_column_count(statement); column++) write_cell(to, statement, column);
    json_end(&to->rows, ']');
  }
  return code;
}

// A savepoint that the script has set and not released. BEGIN is the outermost one, without a name.
typedef struct savepoint {
  const char *name;
  // Rows that had been changed until then, without those that were rolled back.
  int64_t kept;
  struct savepoint *outer;
} savepoint;

// A script: one transaction. BEGIN and COMMIT in it are a savepoint of that transaction.
typedef struct {
  sqlite3 *database;
  const json *parameters;
  int64_t max_rows;
  table found;
  // Rows that were changed, and by a ROLLBACK of the script were not.
  int64_t undone;
  // The innermost one.
  savepoint *open;
  bool has_begun;
} script;

// The savepoint that BEGIN is.
#define BEGUN "toolhold_begin"

static void push(script *of, const char *name) {
  savepoint *inner = json_allocate(NULL, sizeof *inner);
  *inner = (savepoint){name, sqlite3_total_changes64(of->database) - of->undone, of->open};
  of->open = inner;
}

static void roll_back(script *of, const savepoint *to) {
  of->undone = sqlite3_total_changes64(of->database) - to->kept;
}

// BEGIN, COMMIT and ROLLBACK in a script.
static int transact(script *of, step_kind step, toolhold_result *result) {
  if (step == STEP_BEGIN ? of->open != NULL : !of->has_begun) {
    toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                  step == STEP_BEGIN ? "BEGIN stands within a transaction that the script has begun already"
                                     : "COMMIT and ROLLBACK need a BEGIN before them in the same script");
    return SQLITE_ERROR;
  }
  of->has_begun = step == STEP_BEGIN;
  if (step == STEP_BEGIN) {
    push(of, NULL);
    return sqlite3_exec(of->database, "SAVEPOINT " BEGUN, NULL, NULL, NULL);
  }
  const savepoint *begun = of->open;
  while (begun->outer) begun = begun->outer;
  if (step == STEP_ROLLBACK) roll_back(of, begun);
  of->open = NULL;
  return sqlite3_exec(of->database, step == STEP_COMMIT ? "RELEASE " BEGUN : "ROLLBACK TO " BEGUN "; RELEASE " BEGUN, NULL,
                      NULL, NULL);
}

// Keeps count of a SAVEPOINT, RELEASE or ROLLBACK TO that was done.
static void count_savepoint(script *of, const transaction_step *step) {
  if (step->kind == STEP_SAVEPOINT) {
    push(of, step->name);
    return;
  }
  savepoint *named = of->open;
  while (named && (!named->name || sqlite3_stricmp(named->name, step->name))) named = named->outer;
  if (!named) return;
  if (step->kind == STEP_ROLLBACK_TO) roll_back(of, named);
  of->open = step->kind == STEP_RELEASE ? named->outer : named;
}

// Runs the statements from the first to the last. False: one failed, and `result` says why.
static bool run_all(script *of, const json *sql, toolhold_result *result) {
  sqlite3 *database = of->database;
  const char *rest = sql->text, *end = sql->text + sql->length;
  while (rest < end) {
    sqlite3_stmt *statement;
    transaction_step step;
    int code = database_prepare(database, rest, (int)(end - rest), &statement, &rest, &step);
    if (code != SQLITE_OK) return database_failed(database, code, result);
    if (!statement) continue;  // white space, a comment
    if (step.name && !sqlite3_stricmp(step.name, BEGUN))
      return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`%s` is the name of this tool's own savepoint: take another one",
                           BEGUN);
    if (step.kind != STEP_NONE && !step.name) {
      code = transact(of, step.kind, result);
      if (code != SQLITE_OK) return result->message ? false : database_failed(database, code, result);
    } else {
      if (!bind(database, statement, of->parameters, result)) return false;
      table rows = new_table(statement);
      code = run(statement, &rows, of->max_rows);
      if (code != SQLITE_DONE) return database_failed(database, code, result);
      if (sqlite3_column_count(statement)) of->found = rows;
      if (step.name) count_savepoint(of, &step);
    }
    sqlite3_finalize(statement);
  }
  if (!of->has_begun) return true;
  return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                       "the script has a BEGIN without a COMMIT: end it with COMMIT, or leave BEGIN out");
}

bool query(const json *arguments, toolhold_result *result) {
  const json *sql = json_get(arguments, "sql"), *write = json_get(arguments, "write");
  if (!sql || sql->type != JSON_STRING) return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`sql` must be a string");
  int64_t max_rows = json_integer_or(arguments, "max_rows", DEFAULT_ROWS);
  if (max_rows < 1 || max_rows > MAX_ROWS)
    return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`max_rows` must be between 1 and %d", MAX_ROWS);
  bool writes = write && write->boolean;
  sqlite3 *database = database_open(arguments, writes, result);
  if (!database) return false;

  script all = {.database = database, .parameters = json_get(arguments, "parameters"), .max_rows = max_rows};
  all.found = new_table(NULL);
  // A writer waits for its turn before it reads: two that read first would wait for each other.
  bool immediate = writes && !sqlite3_db_readonly(database, "main");
  int code = sqlite3_exec(database, immediate ? "BEGIN IMMEDIATE" : "BEGIN", NULL, NULL, NULL);
  bool done = code == SQLITE_OK ? run_all(&all, sql, result) : database_failed(database, code, result);
  if (done) {
    code = sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
    done = code == SQLITE_OK || database_failed(database, code, result);
  }
  if (!done) {
    if (writes)
      toolhold_fail(result, result->class_, "%s; nothing of this call was kept, because all its statements are one transaction",
                    result->message);
    database_abandon(database);
    return false;
  }
  int64_t changes = sqlite3_total_changes64(database) - all.undone;
  // What was written reaches the file before the answer is given.
  code = sqlite3_close(database);
  if (code != SQLITE_OK) return database_failed(database, code, result);

  table found = all.found;
  json_end(&found.columns, ']');
  json_end(&found.rows, ']');
  json_writer *to = &result->output;
  json_begin(to, '{');
  json_key(to, "columns");
  json_raw(to, &found.columns);
  json_key(to, "rows");
  json_raw(to, &found.rows);
  json_key(to, "truncated");
  json_boolean(to, found.truncated);
  json_key(to, "changes");
  json_integer(to, changes);
  json_end(to, '}');
  return true;
}
