"""The module of a component whose `app.py` uses `urllib.request`."""

import toolhold_web
import app
from componentize_py_types import Err


class Tools(app.Tools):
    """The author's tools. A request that failed, which they did not catch, is an error of the tool."""

    def call(self, invocation):
        try:
            return super().call(invocation)
        except (toolhold_web.RequestFailed, toolhold_web.StatusFailed) as error:
            raise Err(error.tool_error()) from None
