"""The interpreter's logic under a native Python: `python3 -m unittest discover modules/python`.

What componentize-py generates is replaced by plain classes of the same names.
"""

import json
import os
import sys
import tempfile
import types
import unittest
from dataclasses import dataclass
from unittest import mock


@dataclass
class Tool:
    name: str
    title: str
    description: str
    input_schema: str
    output_schema: str
    annotations: int
    examples: list


@dataclass
class Example:
    task: str
    arguments: str
    output: str
    answer: str


@dataclass
class Invocation:
    tool: str
    arguments: str


@dataclass
class Output_Value:
    value: str


@dataclass
class ToolError:
    error_class: str
    message: str
    data: str | None


class Err(Exception):
    def __init__(self, value: ToolError) -> None:
        self.value = value


def module(name: str, **members: object) -> None:
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made


module("componentize_py_types", Err=Err)
module("wit_world", exports=types.SimpleNamespace(Tools=object))
module("wit_world.imports")
module(
    "wit_world.imports.types",
    Annotations=types.SimpleNamespace(READ_ONLY=1),
    ErrorClass=types.SimpleNamespace(CORRECTABLE="correctable"),
    Example=Example,
    Invocation=Invocation,
    Output=object,
    Output_Value=Output_Value,
    Tool=Tool,
    ToolError=ToolError,
)
if sys.version_info < (3, 12):
    # The component's Python has it; its absence changes nothing here.
    module("_pylong")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import app  # noqa: E402
import scratch  # noqa: E402


def call(code: str, **arguments: object) -> dict:
    arguments["code"] = code
    return json.loads(app.Tools().call(Invocation("run", json.dumps(arguments))).value)


class Case(unittest.TestCase):
    def fails(self, code: str, *parts: str, **arguments: object) -> ToolError:
        with self.assertRaises(Err) as caught:
            call(code, **arguments)
        error = caught.exception.value
        self.assertEqual(error.error_class, "correctable")
        for part in parts:
            self.assertIn(part, error.message)
        return error


class Programs(Case):
    def test_examples_return_what_they_claim(self) -> None:
        for example in app.RUN.examples:
            output = call(**json.loads(example.arguments))
            self.assertEqual(output, json.loads(example.output))

    def test_the_last_expression_is_the_result(self) -> None:
        for code, expected in [
            ("1 + 1", 2),
            ("x = 20\nx * 2", 40),
            ("result = [1, 2]", [1, 2]),
            ("input['n'] + 1", 8),
            ("input = 3\ninput", 3),
            ("def f(n):\n  return 1 if n < 2 else n * f(n - 1)\nf(5)", 120),
            ("if __name__ == '__main__':\n  result = 'main'", "main"),
            ("raise SystemExit", None),
            ("result = 5\nexit_code = 0\nimport sys; sys.exit(0)", 5),
        ]:
            with self.subTest(code):
                self.assertEqual(call(code, input={"n": 7})["result"], expected)

    def test_what_json_cannot_hold_is_readable(self) -> None:
        for code, expected in [
            ("2**100", str(2**100)),
            ("float('nan')", "nan"),
            ("{3, 1, 2}", [1, 2, 3]),
            ("{(1, 2): b'x'}", {"(1, 2)": "b'x'"}),
            ("a = []; a.append(a); a", None),
        ]:
            with self.subTest(code):
                result = call(code)["result"]
                if expected is not None:
                    self.assertEqual(result, expected)
        self.fails("'x' * 70_000", "return a part or a summary")

    def test_errors_name_the_line_of_the_code(self) -> None:
        self.fails("x = 1\ny = 0\nx / y", "line 3", "x / y", "ZeroDivisionError")
        self.fails("def f():\n  raise ValueError('deep')\nf()", "line 2", "line 3", "ValueError: deep")
        self.fails("1\n2\nx = = 3", "line 3", "SyntaxError")
        self.fails("def f(): return f()\nf()", "line 1", "RecursionError")
        self.fails("import numpy", "ModuleNotFoundError", "Only these modules")
        self.fails("import sys\nsys.exit('no')", "SystemExit('no')")
        error = self.fails("print('so far')\n1/0")
        self.assertEqual(json.loads(error.data), {"stdout": "so far\n"})
        self.assertNotIn("app.py", error.message)

    def test_what_is_printed_is_cut(self) -> None:
        stdout = call("for _ in range(10_000): print('x' * 1000)")["stdout"]
        self.assertLess(len(stdout), 17_000)
        self.assertIn("9994000 more characters", stdout)

    def test_wrong_calls_are_explained(self) -> None:
        with self.assertRaises(Err) as caught:
            app.Tools().call(Invocation("runs", "{}"))
        self.assertIn("there is: run", caught.exception.value.message)
        self.fails(None, "`code` is missing")


class Files(Case):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.root = folder.name

    def call(self, code: str, **arguments: object) -> dict:
        with mock.patch.object(scratch, "granted", lambda: self.root):
            return call(code, **arguments)

    def test_files_go_in_and_come_out(self) -> None:
        with open(os.path.join(self.root, "old.txt"), "w") as old:
            old.write("old")
        output = self.call(
            "import os\n"
            "os.mkdir('out')\n"
            "open('out/sum.txt', 'w').write(str(sum(map(int, open('n.csv').read().split(',')))))\n"
            "open('bytes', 'wb').write(bytes([255, 0]))\n"
            "open('n.csv', 'w').write('1,2,3')\n"
            "open('old.txt', 'a').write('!')\n"
            "sorted(os.listdir())",
            files=[{"path": "n.csv", "content": "1,2,3"}, {"path": "b", "base64": "/wA="}],
        )
        self.assertEqual(output["result"], ["b", "bytes", "n.csv", "old.txt", "out"])
        self.assertEqual(
            output["files"],
            [
                {"path": "bytes", "size": 2, "base64": "/wA="},
                {"path": "old.txt", "size": 4, "content": "old!"},
                {"path": "out/sum.txt", "size": 1, "content": "6"},
            ],
        )

    def test_large_and_many_files_are_named_without_content(self) -> None:
        code = "for i in range(10, 40): open(f'f{i}', 'w').write('x')\nopen('big', 'w').write('x' * 70_000)"
        files = self.call(code)["files"]
        self.assertEqual(files[0], {"path": "big", "size": 70_000})
        self.assertEqual(len(files), 31)
        self.assertEqual(sum("content" in file for file in files), 20)

    def test_bad_files_are_explained(self) -> None:
        for file, part in [
            ({"path": "../x", "content": ""}, "outside the scratch directory"),
            ({"path": "/etc/passwd", "content": ""}, "outside the scratch directory"),
            ({"path": "a/../../x", "content": ""}, "outside the scratch directory"),
            ({"path": "x"}, "either `content`"),
            ({"path": "x", "content": "", "base64": ""}, "either `content`"),
            ({"path": "x", "base64": "%"}, "base64"),
        ]:
            with self.subTest(file), self.assertRaises(Err) as caught:
                self.call("1", files=[file])
            self.assertIn(part, caught.exception.value.message)

    def test_links_are_not_followed(self) -> None:
        os.symlink("/", os.path.join(self.root, "all"))
        self.assertNotIn("files", self.call("1"))

    def test_without_a_grant_files_are_refused(self) -> None:
        with mock.patch.object(scratch, "granted", lambda: None):
            self.fails("1", "grant python --scratch", files=[{"path": "a", "content": ""}])


if __name__ == "__main__":
    unittest.main()
