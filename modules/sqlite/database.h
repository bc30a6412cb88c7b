// Opening a database inside what was granted, and what SQL may not do there.
#ifndef DATABASE_H
#define DATABASE_H

#include "sqlite3.h"
#include "toolhold.h"

// Opens the database that the arguments name, or an empty one in memory if they name none. NULL: it
// failed, and `result` says why.
sqlite3 *database_open(const json *arguments, bool write, toolhold_result *result);

// Sets the error of a call into SQLite and returns false.
bool database_failed(sqlite3 *database, int code, toolhold_result *result);

#endif
