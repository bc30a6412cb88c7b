"""The scratch directory: input files go in before the code runs, what it wrote comes out after."""

import base64
import binascii
import hashlib
import os
import posixpath

# Where the host puts the directory, if the operator granted it.
GUEST = "/scratch"
# A written file up to this size comes back with its content.
MAX_CONTENT = 64 << 10
# So many written files come back with their content; the rest are named.
MAX_CONTENTS = 20
# So many written files are named at all.
MAX_NAMED = 200
# Larger files are compared by size and time, smaller ones by content: a file system's clock is too
# coarse to see a file rewritten within milliseconds.
MAX_HASHED = 1 << 20
# Files deeper than this are not looked for.
MAX_DEPTH = 16

FILE_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "A relative path, such as `data.csv`."},
        "content": {"type": "string", "description": "The content, if it is text."},
        "base64": {"type": "string", "description": "The content in base64, if it is not text."},
    },
    "required": ["path"],
    "additionalProperties": False,
}

WRITTEN_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The path in the scratch directory."},
        "size": {"type": "integer", "description": "Its size in bytes."},
        "content": {"type": "string", "description": "Its content, if it is text of at most 64 KiB."},
        "base64": {"type": "string", "description": "Its content in base64, if it is not text."},
    },
    "required": ["path", "size"],
    "additionalProperties": False,
}


class BadFile(Exception):
    """A file of the call that cannot be put into the directory."""


def granted() -> str | None:
    """The directory, if this instance was granted one."""
    return GUEST if os.path.isdir(GUEST) else None


def put(root: str, files: list[dict]) -> None:
    """Writes the files that came with the call; raises `BadFile`."""
    for file in files:
        path = resolve(root, file["path"])
        try:
            # Not the directory itself: what it lies in does not exist here.
            if (folder := os.path.dirname(path)) != root:
                os.makedirs(folder, exist_ok=True)
            with open(path, "wb") as out:
                out.write(content(file))
        except OSError as error:
            raise BadFile(f"{file['path']!r} cannot be written: {error.strerror}")


def content(file: dict) -> bytes:
    if ("content" in file) == ("base64" in file):
        raise BadFile(f"{file['path']!r} needs either `content` (text) or `base64` (bytes)")
    if "content" in file:
        return file["content"].encode("utf-8", "replace")
    try:
        return base64.b64decode(file["base64"], validate=True)
    except binascii.Error as error:
        raise BadFile(f"`base64` of {file['path']!r}: {error}")


def resolve(root: str, path: str) -> str:
    """A path as the caller wrote it, in the directory; raises `BadFile` for one that leads out."""
    inside = posixpath.relpath(path, GUEST) if path.startswith(GUEST + "/") else path
    inside = posixpath.normpath(inside)
    if inside in (".", "..") or inside.startswith(("/", "../")) or "\0" in inside:
        raise BadFile(f"{path!r} is outside the scratch directory: use a relative path")
    return posixpath.join(root, inside)


def snapshot(root: str) -> dict[str, object]:
    """What every file is like, by its path."""
    return {name: mark(path) for name, path in walk(root)}


def written_since(root: str, before: dict[str, object]) -> list[dict]:
    """The files that are new or other than in `before`, in the order of their paths."""
    changed = [(name, path) for name, path in walk(root) if mark(path) != before.get(name)]
    written, contents = [], 0
    for name, path in changed[:MAX_NAMED]:
        size = os.path.getsize(path)
        file = {"path": name, "size": size}
        if contents < MAX_CONTENTS and size <= MAX_CONTENT:
            contents += 1
            with open(path, "rb") as source:
                data = source.read()
            try:
                file["content"] = data.decode("utf-8")
            except UnicodeDecodeError:
                file["base64"] = base64.b64encode(data).decode("ascii")
        written.append(file)
    return written


def walk(root: str) -> list[tuple[str, str]]:
    """All files: their names in the directory and their paths, sorted. Links are not followed."""
    found = []

    def collect(folder: str, prefix: str, depth: int) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if depth:
                        collect(entry.path, f"{prefix}{entry.name}/", depth - 1)
                elif entry.is_file(follow_symlinks=False):
                    found.append((prefix + entry.name, entry.path))

    collect(root, "", MAX_DEPTH)
    return sorted(found)


def mark(path: str) -> object:
    file = os.stat(path)
    if file.st_size > MAX_HASHED:
        return file.st_size, file.st_mtime_ns
    with open(path, "rb") as source:
        return hashlib.sha256(source.read()).digest()
