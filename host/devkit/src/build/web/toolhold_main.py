"""The module of a component whose `app.py` uses `urllib.request`."""

import toolhold_web
import app
from componentize_py_types import Err
from wit_world.imports.types import ErrorClass, ToolError


class Tools(app.Tools):
    """The author's tools. A request without a response, which they did not catch, is an error of the tool."""

    def call(self, invocation):
        try:
            return super().call(invocation)
        except toolhold_web.RequestFailed as error:
            kind = ErrorClass[error.kind.upper()]
            raise Err(ToolError(kind, str(error), None)) from error
