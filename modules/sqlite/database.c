#include "database.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wasi/api.h>

#include "locks.h"

// Bounds of one value and of one statement; the host bounds memory and time.
#define MAX_VALUE (16 << 20)
#define MAX_SQL (1 << 20)
// Instructions of SQLite's machine: some seconds. The model is told, where the host's limit would
// only end the call.
#define STEP 1000000
#define MAX_STEPS 500

// The first granted directory, or NULL.
static const char *granted_directory(void) {
  static char path[512];
  __wasi_prestat_t prestat;
  // Preopened directories begin after the standard streams.
  if (__wasi_fd_prestat_get(3, &prestat) || prestat.tag != __WASI_PREOPENTYPE_DIR) return NULL;
  size_t length = prestat.u.dir.pr_name_len;
  if (length >= sizeof path || __wasi_fd_prestat_dir_name(3, (uint8_t *)path, length)) return NULL;
  path[length] = 0;
  return path;
}

// Whether one part of the path is `..`.
static bool climbs(const char *path) {
  for (const char *at = path; (at = strstr(at, "..")); at += 2)
    if ((at == path || at[-1] == '/') && (at[2] == 0 || at[2] == '/')) return true;
  return false;
}

// Where a path that the model wrote leads: relative ones begin in the granted directory.
static char *resolve(const json *path, toolhold_result *result) {
  const char *root = granted_directory();
  if (!root) {
    toolhold_fail(result, TOOLHOLD_FATAL,
                  "no directory is granted to this module: ask the operator to grant it one (directory `/data`), or "
                  "leave `database` out to work in memory");
    return NULL;
  }
  size_t length = strlen(root);
  const char *inside = path->text;
  if (*inside == '/' && !strncmp(inside, root, length) && inside[length] == '/') inside += length + 1;
  if (*inside == '/' || !*inside || climbs(inside) || strlen(path->text) != path->length) {
    toolhold_fail(result, TOOLHOLD_CORRECTABLE, "`%s` is outside the granted directory; use a relative path or one under %s",
                  path->text, root);
    return NULL;
  }
  char *full = json_allocate(NULL, length + strlen(inside) + 2);
  sprintf(full, "%s/%s", root, inside);
  return full;
}

static bool harmless_pragma(const char *name) {
  static const char *const names[] = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo",
                                      "foreign_key_list", "foreign_key_check", "integrity_check", "quick_check",
                                      "user_version", "page_count", "page_size", "encoding", "function_list",
                                      "collation_list", "compile_options", "database_list"};
  for (size_t index = 0; index < sizeof names / sizeof *names; index++)
    if (!sqlite3_stricmp(name, names[index])) return true;
  return false;
}

// Of the statement that is being compiled.
static transaction_step compiled;
// Whether the call may change its database.
static bool is_for_writing;

// One database a call, no settings changed: what else SQL can do stays inside its file.
static int authorize(void *unused, int action, const char *first, const char *second, const char *database,
                     const char *trigger) {
  if (action == SQLITE_TRANSACTION)
    compiled.kind = !strcmp(first, "BEGIN") ? STEP_BEGIN : !strcmp(first, "COMMIT") ? STEP_COMMIT : STEP_ROLLBACK;
  if (action == SQLITE_SAVEPOINT) {
    compiled.kind = !strcmp(first, "BEGIN") ? STEP_SAVEPOINT : !strcmp(first, "RELEASE") ? STEP_RELEASE : STEP_ROLLBACK_TO;
    compiled.name = strcpy(json_allocate(NULL, strlen(second) + 1), second);
  }
  if (action == SQLITE_ATTACH || action == SQLITE_DETACH) return SQLITE_DENY;
  if (action == SQLITE_PRAGMA) return harmless_pragma(first) ? SQLITE_OK : SQLITE_DENY;
  return SQLITE_OK;
}

static int count_steps(void *steps) { return ++*(int *)steps > MAX_STEPS; }

int database_prepare(sqlite3 *database, const char *sql, int length, sqlite3_stmt **statement, const char **rest,
                     transaction_step *step) {
  compiled = (transaction_step){STEP_NONE};
  int code = sqlite3_prepare_v2(database, sql, length, statement, rest);
  // EXPLAIN shows a statement and does nothing.
  *step = code == SQLITE_OK && sqlite3_stmt_isexplain(*statement) ? (transaction_step){STEP_NONE} : compiled;
  return code;
}

// Whether the file's header says that it is in WAL mode: version 2 of the format for reading.
static bool is_wal(const char *path) {
  char header[20];
  int file = open(path, O_RDONLY);
  if (file < 0) return false;
  ssize_t length = read(file, header, sizeof header);
  close(file);
  return length == sizeof header && !memcmp(header, "SQLite format 3", 16) && header[19] == 2;
}

static bool is_writable(const char *path) {
  int file = open(path, O_RDWR);
  if (file >= 0) close(file);
  return file >= 0;
}

// Opens a database in WAL mode. Without shared memory it is used alone, by the lock that every other connection to it
// meets. SQLite keeps the lock for reading while it tries for that one, so each try begins anew.
static int open_wal(const char *path, bool write, sqlite3 **database) {
  int code;
  for (int tries = 0;; tries++) {
    code = sqlite3_open_v2(path, database, SQLITE_OPEN_READWRITE, "unix");
    if (code == SQLITE_OK)
      code = sqlite3_exec(*database, "PRAGMA locking_mode = EXCLUSIVE; SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL);
    if ((code & 0xFF) != SQLITE_BUSY || !locks_pause(tries)) break;
    sqlite3_close(*database);
  }
  if (code == SQLITE_OK && !write) code = sqlite3_exec(*database, "PRAGMA query_only = ON", NULL, NULL, NULL);
  return code;
}

sqlite3 *database_open(const json *arguments, bool write, toolhold_result *result) {
  const json *name = json_get(arguments, "database");
  bool memory = !name || name->type != JSON_STRING;
  const char *path = memory ? ":memory:" : resolve(name, result);
  if (!path) return NULL;

  locks_install();
  is_for_writing = memory || write;
  int flags = is_for_writing ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  sqlite3 *database = NULL;
  bool wal = !memory && is_wal(path);
  if (wal && !is_writable(path)) {
    toolhold_fail(result, TOOLHOLD_FATAL,
                  "`%s` is in WAL mode, and such a database can be read only where this module may write: the operator can "
                  "grant its folder as read-write, or an application that has it open can run PRAGMA journal_mode = DELETE",
                  name->text);
    return NULL;
  }
  int code = wal ? open_wal(path, write, &database) : sqlite3_open_v2(path, &database, flags, "unix");
  if (code != SQLITE_OK) {
    if (code == SQLITE_CANTOPEN)
      toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                    write ? "cannot open `%s` for writing: its folder does not exist, or the grant is read-only"
                          : "cannot open `%s`: there is no such database; set `write` to create it",
                    name->text);
    else if (wal && (code & 0xFF) == SQLITE_BUSY)
      toolhold_fail(result, TOOLHOLD_RETRYABLE,
                    "`%s` is busy: it is in WAL mode, in which this tool must have it alone, and another program has it open; "
                    "try again later",
                    name->text);
    else
      database_failed(database, code, result);
    database_abandon(database);
    return NULL;
  }
  locks_wait(database);
  static int steps;
  sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  sqlite3_limit(database, SQLITE_LIMIT_LENGTH, MAX_VALUE);
  sqlite3_limit(database, SQLITE_LIMIT_SQL_LENGTH, MAX_SQL);
  sqlite3_limit(database, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_progress_handler(database, STEP, count_steps, &steps);
  sqlite3_set_authorizer(database, authorize, NULL);
  return database;
}

void database_abandon(sqlite3 *database) {
  if (!database) return;
  sqlite3_progress_handler(database, 0, NULL, NULL);
  for (sqlite3_stmt *statement; (statement = sqlite3_next_stmt(database, NULL));) sqlite3_finalize(statement);
  if (!sqlite3_get_autocommit(database)) sqlite3_exec(database, "ROLLBACK", NULL, NULL, NULL);
  sqlite3_close(database);
}

bool database_failed(sqlite3 *database, int code, toolhold_result *result) {
  switch (code & 0xFF) {
    case SQLITE_INTERRUPT:
      return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                           "the statement took too many steps: narrow it with WHERE or LIMIT, or join on indexed columns");
    case SQLITE_BUSY:
      return toolhold_fail(result, TOOLHOLD_RETRYABLE,
                           "the database is busy: another program has locked it, and did not let go of it in the time of "
                           "this call; try again later");
    case SQLITE_IOERR:
      if (!locks_missing()) break;
      return toolhold_fail(result, TOOLHOLD_FATAL, "the database was not used: %s", locks_missing());
    case SQLITE_READONLY:
      if (sqlite3_extended_errcode(database) == SQLITE_READONLY_ROLLBACK)
        return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                             "a program was stopped while it changed the database, and that change must be undone before it "
                             "can be read: run the statement with `write` set to true");
      if (is_for_writing)
        return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                             "the database cannot be changed: the grant of its folder, or the file, is read-only");
      return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                           "the database is open for reading: set `write` to true if it is to be changed");
    case SQLITE_AUTH:
      return toolhold_fail(result, TOOLHOLD_CORRECTABLE,
                           "not allowed here: ATTACH, DETACH and PRAGMAs that change something; name another database in "
                           "`database` instead");
    case SQLITE_NOTADB:
      return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "that file is not an SQLite database");
    case SQLITE_NOMEM:
      return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "not enough memory for this: ask for less at a time");
  }
  return toolhold_fail(result, TOOLHOLD_CORRECTABLE, "SQL error: %s", sqlite3_errmsg(database));
}
