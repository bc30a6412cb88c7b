"""The module of a base, from which dev builds are made (`toolhold build --dev`).

While the base is built, this imports the author's module, so that what it needs is in memory, and forgets the author's own
modules. A dev build then runs the base once and calls the tool with the author's sources as its arguments, before its
memory becomes the component.
"""

import importlib
import importlib.util
import json
import linecache
import os
import random
import sys
import traceback
from importlib.machinery import SourceFileLoader

from wit_world import exports
from wit_world.imports import environment
from wit_world.imports.types import Output_Message, Output_Value

# With support for HTTP, that begins the component.
ENTRY = "toolhold_main" if importlib.util.find_spec("toolhold_main") else "app"


def _is_own(name, module):
    file = getattr(module, "__file__", None) or ""
    return file.startswith("/0/") or name.partition(".")[0] in ("app", "toolhold", "toolhold_main")


importlib.import_module(ENTRY)
for _name in [name for name, module in sys.modules.items() if _is_own(name, module)]:
    del sys.modules[_name]


class _Loader(SourceFileLoader):
    files = {}

    def path_stats(self, path):
        raise OSError(path)

    def get_data(self, path):
        if path in self.files:
            return self.files[path].encode()
        raise OSError(path)


class _Finder:
    """Finds the author's modules in what was handed over, in the place of their folders."""

    def __init__(self, roots):
        self.roots = roots

    def find_spec(self, name, path=None, target=None):
        if path is None and name in sys.stdlib_module_names:
            return None
        for root in self.roots if path is None else path:
            folder = f"{root}/{name.rpartition('.')[2]}"
            for file, inside in ((f"{folder}/__init__.py", [folder]), (f"{folder}.py", None)):
                if file in _Loader.files:
                    return importlib.util.spec_from_file_location(
                        name, file, loader=_Loader(name, file), submodule_search_locations=inside
                    )
        return None


def _told(error):
    """The traceback as Python prints it, without frames of this file and of the import system."""
    told = traceback.TracebackException(type(error), error, error.__traceback__, lookup_lines=False)
    each = told
    while each:
        own = [frame for frame in each.stack if frame.filename in _Loader.files]
        each.stack = traceback.StackSummary.from_list(own)
        each = each.__cause__ or each.__context__
    return "".join(told.format())


# What these import when they are first used.
for _text in ("1 // 0", "x = = 1", "unknown"):
    try:
        exec(compile(_text, "<warm>", "exec"))
    except Exception as _error:
        _told(_error)
# Else the files of these frames would be looked at again, which a dev build cannot.
linecache.clearcache()

# The runtime makes one of `Tools` for each function.
_made = []


class Tools(exports.Tools):
    def __init__(self):
        self._tools = None
        _made.append(self)

    def list_tools(self):
        return self._begun().list_tools()

    def call(self, invocation):
        if self._tools is None:
            return _load(json.loads(invocation.arguments))
        return self._begun().call(invocation)

    def _begun(self):
        # The runtime does this before the first call, which was that of the build.
        if _made:
            _made.clear()
            for name, value in environment.get_environment():
                os.environ[name] = value
            sys.argv.extend(environment.get_arguments())
            random.seed()
        return self._tools


def _load(given):
    finder = _Finder(given["roots"])
    _Loader.files = given["files"]
    sys.meta_path.insert(0, finder)
    for path, text in _Loader.files.items():
        linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    try:
        module = importlib.import_module(ENTRY)
        for shim in _made:
            shim._tools = module.Tools()
    except BaseException as error:
        return Output_Message(json.dumps(_told(error)))
    # As in a component from a whole build, whose files are not there when it is called.
    sys.meta_path.remove(finder)
    _Loader.files = {}
    linecache.clearcache()
    return Output_Value("null")
