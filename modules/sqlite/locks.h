// The locks of SQLite on its files, which WASI does not have: the host takes them, so that native programs beside it see
// them and it sees theirs.
#ifndef LOCKS_H
#define LOCKS_H

#include <stdbool.h>

#include "sqlite3.h"

// Gives SQLite's VFS `unix` the host's locks.
void locks_install(void);

// Waits a moment, the longer the more tries were made; false if the call has no more time to wait.
bool locks_pause(int tries);

// Has a connection wait for locks, as long as the call has time.
void locks_wait(sqlite3 *database);

// Why no lock could be had, in words; NULL if none was missing.
const char *locks_missing(void);

#endif
