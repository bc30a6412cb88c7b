// What is in a database: tables and views with their columns.
#include <string.h>

#include "database.h"
#include "tools.h"

#define MAX_TABLES 200

static void write_text(json_writer *to, const char *key, sqlite3_stmt *row, int column) {
  const char *text = (const char *)sqlite3_column_text(row, column);
  json_key(to, key);
  json_string(to, text ? text : "", text ? strlen(text) : 0);
}

static int write_columns(sqlite3 *database, const char *table, json_writer *to) {
  sqlite3_stmt *row;
  int code = sqlite3_prepare_v2(database, "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?)", -1, &row, NULL);
  if (code != SQLITE_OK) return code;
  sqlite3_bind_text(row, 1, table, -1, SQLITE_TRANSIENT);
  while ((code = sqlite3_step(row)) == SQLITE_ROW) {
    json_begin(to, '{');
    write_text(to, "name", row, 0);
    write_text(to, "type", row, 1);
    json_key(to, "not_null");
    json_boolean(to, sqlite3_column_int(row, 2));
    json_key(to, "primary_key");
    json_boolean(to, sqlite3_column_int(row, 3));
    json_end(to, '}');
  }
  sqlite3_finalize(row);
  return code;
}

static bool describe(sqlite3 *database, toolhold_result *result) {
  sqlite3_stmt *row;
  int code = sqlite3_prepare_v2(database,
                                "SELECT name, type, sql FROM sqlite_schema "
                                "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
                                -1, &row, NULL);
  if (code != SQLITE_OK) return database_failed(database, code, result);
  json_writer *to = &result->output;
  int tables = 0;
  json_begin(to, '{');
  json_key(to, "tables");
  json_begin(to, '[');
  while ((code = sqlite3_step(row)) == SQLITE_ROW && tables++ < MAX_TABLES) {
    json_begin(to, '{');
    write_text(to, "name", row, 0);
    write_text(to, "kind", row, 1);
    json_key(to, "columns");
    json_begin(to, '[');
    int columns = write_columns(database, (const char *)sqlite3_column_text(row, 0), to);
    if (columns != SQLITE_DONE) return database_failed(database, columns, result);
    json_end(to, ']');
    write_text(to, "sql", row, 2);
    json_end(to, '}');
  }
  if (code != SQLITE_DONE && code != SQLITE_ROW) return database_failed(database, code, result);
  json_end(to, ']');
  json_key(to, "truncated");
  json_boolean(to, code == SQLITE_ROW);
  json_end(to, '}');
  return true;
}

bool schema(const json *arguments, toolhold_result *result) {
  sqlite3 *database = database_open(arguments, false, result);
  if (!database) return false;
  bool done = describe(database, result);
  database_abandon(database);
  return done;
}
