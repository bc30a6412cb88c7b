// Opening a database inside what was granted, and what SQL may not do there.
#ifndef DATABASE_H
#define DATABASE_H

#include "sqlite3.h"
#include "toolhold.h"

// Opens the database that the arguments name, or an empty one in memory if they name none. NULL: it
// failed, and `result` says why.
sqlite3 *database_open(const json *arguments, bool write, toolhold_result *result);

// What a statement does to the transaction.
typedef enum { STEP_NONE, STEP_BEGIN, STEP_COMMIT, STEP_ROLLBACK, STEP_SAVEPOINT, STEP_RELEASE, STEP_ROLLBACK_TO } step_kind;

typedef struct {
  step_kind kind;
  // Of a savepoint, from json_allocate.
  char *name;
} transaction_step;

// Compiles the next statement of `sql`, and says what it does to the transaction.
int database_prepare(sqlite3 *database, const char *sql, int length, sqlite3_stmt **statement, const char **rest,
                     transaction_step *step);

// Sets the error of a call into SQLite and returns false.
bool database_failed(sqlite3 *database, int code, toolhold_result *result);

// Undoes what was not committed and closes the database.
void database_abandon(sqlite3 *database);

#endif
