"""A directory walker that somebody wrote for any host of components: it knows nothing of Toolhold."""

import os

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.listing import (
    Entry,
    Kind_Directory,
    Kind_File,
    Kind_Other,
    Options,
    Order,
)


class Listing(exports.Listing):
    def walk(self, root: str, options: Options) -> list[Entry]:
        return list(entries(root, options.max_depth, options.suffix))

    def largest(self, root: str, order: Order, count: int) -> list[tuple[str, int]]:
        files = [
            (entry.path, entry.kind.value)
            for entry in entries(root, 64, None)
            if isinstance(entry.kind, Kind_File)
        ]
        files.sort(key=lambda file: (-file[1], file[0]))
        files = files[:count]
        return sorted(files) if order == Order.BY_NAME else files


def entries(root: str, depth: int, suffix: str | None):
    try:
        found = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError as error:
        raise Err(f"{root}: {error.strerror}")
    for entry in found:
        status = entry.stat(follow_symlinks=False)
        if entry.is_symlink():
            kind = Kind_Other("link")
        elif entry.is_dir():
            kind = Kind_Directory()
        else:
            kind = Kind_File(status.st_size)
        if suffix is None or entry.name.endswith(suffix):
            yield Entry(entry.path, kind, int(status.st_mtime))
        if isinstance(kind, Kind_Directory) and depth > 1:
            yield from entries(entry.path, depth - 1, suffix)
