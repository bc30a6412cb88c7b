// `fcntl(F_SETLK)` and `fcntl(F_GETLK)` over `toolhold:module/file-locks`. SQLite decides which bytes it locks and when.
// The functions are declared as the canonical ABI has them.
#include "locks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

// As SQLite defines them where the C library does not.
#ifndef F_RDLCK
#define F_RDLCK 0
#define F_WRLCK 1
#define F_UNLCK 2
#define F_GETLK 12
#define F_SETLK 13
#endif

// Files that SQLite has open at a time: a database and its journal, and one more of each while it changes.
#define MAX_FILES 16
#define MAX_PATH 1024
// Milliseconds between two tries; the first ones are closer together.
#define LONGEST_PAUSE 20

enum { KIND_SHARED, KIND_EXCLUSIVE };
enum { ERROR_BUSY, ERROR_DENIED, ERROR_UNSUPPORTED, ERROR_FAILED };

// result<_, lock-error>
typedef struct {
  uint8_t failed;
  uint8_t error;
} outcome;
// result<bool, lock-error>
typedef struct {
  uint8_t failed;
  uint8_t value;
} answer;
// result<own<lockable-file>, lock-error>
typedef struct {
  uint8_t failed;
  union {
    int32_t handle;
    uint8_t error;
  };
} opened;

#define IMPORT(name) __attribute__((import_module("toolhold:module/file-locks@0.1.0"), import_name(name))) extern

IMPORT("[static]lockable-file.open")
void host_open(const char *path, size_t length, opened *result);
IMPORT("[method]lockable-file.lock")
void host_lock(int32_t self, int64_t start, int64_t length, int32_t kind, outcome *result);
IMPORT("[method]lockable-file.unlock")
void host_unlock(int32_t self, int64_t start, int64_t length, outcome *result);
IMPORT("[method]lockable-file.is-locked")
void host_is_locked(int32_t self, int64_t start, int64_t length, answer *result);
IMPORT("[resource-drop]lockable-file")
void host_drop(int32_t self);
IMPORT("patience")
int64_t host_patience(void);

// A file that SQLite has open.
typedef struct {
  int fd;
  bool is_open;
  bool is_lockable;
  int32_t lockable;
  char path[MAX_PATH];
} open_file;

static open_file files[MAX_FILES];
static const char *missing;

static open_file *find(int fd) {
  for (int index = 0; index < MAX_FILES; index++)
    if (files[index].is_open && files[index].fd == fd) return &files[index];
  return NULL;
}

static int failed(uint8_t error) {
  switch (error) {
    case ERROR_BUSY: errno = EAGAIN; break;
    case ERROR_DENIED:
      missing = "it cannot be locked for writing, because the grant or the file is read-only";
      errno = EBADF;
      break;
    case ERROR_UNSUPPORTED:
      missing = "its file system has no locks, and without them other programs could corrupt the database";
      errno = ENOTSUP;
      break;
    default:
      missing = "the host could not lock it";
      errno = EIO;
  }
  return -1;
}

// SQLite opens a file, of which the path is needed to lock it.
static int open_noted(const char *path, int flags, int mode) {
  int fd = open(path, flags, mode);
  if (fd < 0) return fd;
  for (int index = 0; index < MAX_FILES; index++) {
    if (files[index].is_open || strlen(path) >= MAX_PATH) continue;
    files[index] = (open_file){.fd = fd, .is_open = true};
    strcpy(files[index].path, path);
    break;
  }
  return fd;
}

static int close_noted(int fd) {
  open_file *file = find(fd);
  if (file) {
    // Its locks end with it.
    if (file->is_lockable) host_drop(file->lockable);
    file->is_open = false;
  }
  return close(fd);
}

static int lock(int fd, int command, struct flock *wish) {
  open_file *file = find(fd);
  if (!file) return failed(ERROR_FAILED);
  if (!file->is_lockable) {
    opened result = {0};
    host_open(file->path, strlen(file->path), &result);
    if (result.failed) return failed(result.error);
    file->lockable = result.handle;
    file->is_lockable = true;
  }
  // 0 is "to the end, wherever that will be".
  int64_t start = wish->l_start, length = wish->l_len ? wish->l_len : INT64_MAX - start;
  if (command == F_GETLK) {
    answer found = {0};
    host_is_locked(file->lockable, start, length, &found);
    if (found.failed) return failed(found.value);
    if (!found.value) wish->l_type = F_UNLCK;
    return 0;
  }
  outcome set = {0};
  if (wish->l_type == F_UNLCK)
    host_unlock(file->lockable, start, length, &set);
  else
    host_lock(file->lockable, start, length, wish->l_type == F_WRLCK ? KIND_EXCLUSIVE : KIND_SHARED, &set);
  return set.failed ? failed(set.error) : 0;
}

static int fcntl_locking(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  int result;
  if (command == F_SETLK || command == F_GETLK)
    result = lock(fd, command, va_arg(rest, struct flock *));
  else
    result = fcntl(fd, command, va_arg(rest, int));
  va_end(rest);
  return result;
}

void locks_install(void) {
  sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
  vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_noted);
  vfs->xSetSystemCall(vfs, "close", (sqlite3_syscall_ptr)close_noted);
  vfs->xSetSystemCall(vfs, "fcntl", (sqlite3_syscall_ptr)fcntl_locking);
}

bool locks_pause(int tries) {
  int pause = tries < 5 ? 1 << tries : LONGEST_PAUSE;
  if (host_patience() < pause) return false;
  usleep((unsigned)pause * 1000);
  return true;
}

static int wait_for_lock(void *unused, int tries) { return locks_pause(tries); }

void locks_wait(sqlite3 *database) { sqlite3_busy_handler(database, wait_for_lock, NULL); }

const char *locks_missing(void) { return missing; }
