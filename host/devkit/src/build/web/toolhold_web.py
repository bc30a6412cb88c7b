"""`urllib.request` over `wasi:http`: the host sends a request only to an origin that was granted.

The build puts this before the module, so that `urllib.request.urlopen` works as it is.
"""

import http.client
import io
import re
import time
import urllib.error
import urllib.request
import urllib.response
import weakref

from componentize_py_types import Err, Ok
from wit_world.imports import httpt, outgoing_handler, streams
from wit_world.imports.types import ErrorClass, ToolError

# Most bytes of a response's body.
MOST = 16 << 20
# Bytes of a body that are sent at a time, by the definition of `blocking-write-and-flush`.
WRITE = 4096
# Responses that are not read to their end, fewer than the 8 requests that the host allows a call at a time by default
# (`http_concurrent`): a further request has the oldest one read into memory.
MOST_OPEN = 6
# Methods whose requests may be sent again (RFC 9110, 9.2.2).
REPEATABLE = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}
METHODS = {
    "GET": httpt.Method_Get,
    "HEAD": httpt.Method_Head,
    "POST": httpt.Method_Post,
    "PUT": httpt.Method_Put,
    "DELETE": httpt.Method_Delete,
    "CONNECT": httpt.Method_Connect,
    "OPTIONS": httpt.Method_Options,
    "TRACE": httpt.Method_Trace,
    "PATCH": httpt.Method_Patch,
}
# What the host writes itself.
OF_THE_HOST = {"connection", "host", "transfer-encoding"}


class RequestFailed(urllib.error.URLError):
    """There is no response. Where nothing catches it, the call fails with this message.

    `kind` is `correctable`, `retryable` or `fatal`, as in the errors of tools.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind

    def __str__(self) -> str:
        return self.reason

    def tool_error(self) -> ToolError:
        return ToolError(ErrorClass[self.kind.upper()], self.reason, None)


class TimedOut(RequestFailed, TimeoutError):
    """The request took longer than its `timeout`."""


class StatusFailed(urllib.error.HTTPError):
    """A response of a status that `urlopen` takes for an error. Where nothing catches it, the call fails with it."""

    method = "GET"
    # What another time may answer otherwise (RFC 9110, 15; RFC 6585, 4).
    PASSING = {429, 502, 503, 504}

    def tool_error(self) -> ToolError:
        again = self.code in self.PASSING and self.method in REPEATABLE
        kind = ErrorClass.RETRYABLE if again else ErrorClass.FATAL
        return ToolError(kind, f"{self.method} {self.url} answered {self.code} {self.msg}".rstrip(), None)


class StatusHandler(urllib.request.HTTPDefaultErrorHandler):
    """What becomes of a response that is no success."""

    def http_error_default(self, request, response, code, message, headers):
        error = StatusFailed(request.full_url, code, message, headers, response)
        error.method = request.get_method()
        raise error


class Handler(urllib.request.HTTPHandler):
    """What opens http and https."""

    def http_open(self, request):
        return send(request)

    https_open = http_open
    https_request = urllib.request.AbstractHTTPHandler.do_request_


def send(request):
    method = request.get_method()
    url = request.full_url
    headers = {**request.unredirected_hdrs, **request.headers}
    headers = {name.lower(): value for name, value in headers.items()}
    body = content(request.data)
    if body is not None:
        headers["content-length"] = str(len(body))
    entries = [entry(name, value) for name, value in headers.items() if name not in OF_THE_HOST]
    outgoing = None
    try:
        outgoing = httpt.OutgoingRequest(httpt.Fields.from_list(entries))
        outgoing.set_method(METHODS[method]() if method in METHODS else httpt.Method_Other(method))
        outgoing.set_scheme(httpt.Scheme_Https() if request.type == "https" else httpt.Scheme_Http())
        outgoing.set_authority(request.host)
        outgoing.set_path_with_query(request.selector or "/")
    except Err as error:
        # An error that is kept keeps what this function holds.
        if outgoing is not None:
            outgoing.__exit__(None, None, None)
        why = f": {named(error.value)}" if error.value is not None else ""
        message = f"{method} {url} is no request that can be sent{why}; write an absolute URL with https://"
        raise RequestFailed("correctable", message) from None
    make_room()
    sending = outgoing.body() if body is not None else None
    timeout = request.timeout if isinstance(request.timeout, (int, float)) else None
    what = (method, url, timeout)
    begun = time.monotonic()
    try:
        pending = outgoing_handler.handle(outgoing, timeouts(timeout))
    except Err as error:
        if sending is not None:
            sending.__exit__(None, None, None)
        raise failed(what, error.value) from None
    with pending, pending.subscribe() as ready:
        if sending is not None:
            write(sending, body)
        ready.block()
        answer = pending.get()
    if not isinstance(answer, Ok):
        raise RequestFailed("fatal", f"{method} {url}: the host gave no response")
    if isinstance(answer.value, Err):
        raise failed(what, answer.value.value, is_over(begun, timeout))
    return received(what, answer.value.value)


def entry(name: str, value) -> tuple[str, bytes]:
    """A header as it is sent, with the errors of `http.client` for what cannot be one."""
    name.encode("ascii")
    if isinstance(value, int):
        value = str(value)
    data = value.encode("latin-1") if isinstance(value, str) else bytes(value)
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError(f"Invalid header name {name!r}")
    if re.search(rb"[\0\r\n]", data):
        raise ValueError(f"Invalid header value {data!r}")
    return name, data


def content(data) -> bytes | None:
    """The body of a request: bytes, a file, or an iterable of bytes."""
    if data is None or isinstance(data, bytes):
        return data
    if hasattr(data, "read"):
        data = data.read()
        return data.encode("latin-1") if isinstance(data, str) else data
    try:
        return bytes(memoryview(data))
    except TypeError:
        return b"".join(data)


def timeouts(seconds: float | None):
    """The time until the head of the response, and that between two parts of its body."""
    if seconds is None:
        return None
    options = httpt.RequestOptions()
    nanoseconds = max(0, int(seconds * 1_000_000_000))
    options.set_first_byte_timeout(nanoseconds)
    options.set_between_bytes_timeout(nanoseconds)
    return options


def is_over(begun: float, timeout: float | None) -> bool:
    """Whether the module's own time has passed. The host has one too, which may be shorter."""
    if timeout is None:
        return False
    # A module's clock has steps.
    step = time.get_clock_info("monotonic").resolution
    return time.monotonic() - begun + step >= timeout


def write(body, data: bytes):
    """Why a body was refused comes in the response's place."""
    try:
        with body.write() as stream:
            for start in range(0, len(data), WRITE):
                stream.blocking_write_and_flush(data[start : start + WRITE])
    except Err as error:
        # The host counts the request as open until the last of these is gone.
        if isinstance(error.value, streams.StreamError_LastOperationFailed):
            error.value.value.__exit__(None, None, None)
        body.__exit__(None, None, None)
        return
    try:
        httpt.OutgoingBody.finish(body, None)
    except Err:
        pass


def received(what: tuple, response):
    headers = http.client.HTTPMessage()
    with response.headers() as fields:
        for name, value in fields.entries():
            headers[name] = value.decode("latin-1")
    status = response.status()
    opened = urllib.response.addinfourl(io.BufferedReader(Body(what, response)), headers, what[1], status)
    opened.msg = opened.reason = http.client.responses.get(status, "")
    return opened


# Bodies that hold their request, the oldest first. One that nothing refers to closes itself.
unread = []


def make_room():
    """Has the oldest response read, so that one more request can be open."""
    unread[:] = [found for found in unread if found() is not None]
    while len(unread) >= MOST_OPEN:
        oldest = unread.pop(0)()
        if oldest is not None:
            oldest.load()


class Body(io.RawIOBase):
    """A response's body, which is read as it comes."""

    def __init__(self, what: tuple, response):
        self.what = what
        self.size = 0
        self.loaded = None
        self.held = [response]
        body = response.consume()
        self.held.insert(0, body)
        self.stream = body.stream()
        self.held.insert(0, self.stream)
        unread.append(weakref.ref(self))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self.next(len(buffer)) if self.loaded is None else self.loaded.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def next(self, most: int) -> bytes:
        if not self.held:
            return b""
        try:
            data = self.stream.blocking_read(most)
        except Err as error:
            ended = self.ended(error.value)
            self.release()
            if ended is not None:
                raise ended from None
            return b""
        self.size += len(data)
        if self.size > MOST:
            self.release()
            message = f"the body of {self.what[1]} has more than the {MOST >> 20} MiB that a module reads"
            raise RequestFailed("fatal", message)
        return data

    def ended(self, error) -> RequestFailed | None:
        """What ended the body before its end."""
        if isinstance(error, streams.StreamError_Closed):
            return None
        with error.value as why:
            code = httpt.http_error_code(why)
            return failed(self.what, code) if code is not None else broke_off(*self.what[:2], why.to_debug_string())

    def load(self):
        """Reads what is left, so that the request ends."""
        parts = []
        try:
            while part := self.next(1 << 16):
                parts.append(part)
            self.loaded = io.BytesIO(b"".join(parts))
        except RequestFailed as error:
            self.loaded = Broken(b"".join(parts), error)

    def release(self):
        """The children before their parents."""
        for resource in self.held:
            resource.__exit__(None, None, None)
        self.held = []
        unread[:] = [found for found in unread if found() is not self]

    def close(self):
        if not self.closed:
            self.release()
        super().close()


class Broken(io.BytesIO):
    """What came of a body, and then why there is no more."""

    def __init__(self, data: bytes, error: RequestFailed):
        super().__init__(data)
        self.error = error

    def read(self, size=-1) -> bytes:
        data = super().read(size)
        if not data and size != 0:
            raise self.error
        return data


def named(code) -> str:
    """The case of an error, as in the WIT: `HTTP-request-denied`."""
    name = type(code).__name__.partition("_")[2] or type(code).__name__
    name = re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
    return re.sub(r"\b(dns|http|ip|tls|uri)\b", lambda found: found[0].upper(), name)


def failed(what: tuple, code, is_late: bool = False) -> RequestFailed:
    """What to say of an error of `wasi:http`, and whose move it is (docs/modules.md, "HTTP").

    `is_late`: the module's own time for the head of the response has passed.
    """
    method, url, timeout = what
    origin = "/".join(url.split("/", 3)[:3])
    name = named(code)
    match name:
        case "HTTP-request-denied":
            return RequestFailed(
                "fatal",
                f"{method} {url} was not granted to this module, or redirects to what was not; an operator can: "
                f"toolhold modules grant MODULE --with-http {origin} (toolhold modules call names what was refused)",
            )
        case "destination-IP-prohibited":
            return RequestFailed(
                "fatal",
                f"{url} is on a private network, or redirects to one, which the grant does not include; an operator "
                f"can: toolhold modules grant MODULE --with-http {origin} --private",
            )
        case (
            "DNS-error"
            | "destination-not-found"
            | "HTTP-request-URI-invalid"
            | "HTTP-request-URI-too-long"
            | "HTTP-request-method-invalid"
        ):
            return RequestFailed("correctable", f"{url} cannot be reached: {name}")
        case "loop-detected":
            return RequestFailed(
                "correctable",
                f"{url} redirects more often than the grant allows; ask for the address that it leads to",
            )
        case "connection-limit-reached":
            return RequestFailed(
                "fatal",
                f"{method} {url} was not sent: this call reached its limit of requests (`http_requests`) or of "
                "requests at once (`http_concurrent`)",
            )
        case "HTTP-request-body-size":
            return RequestFailed(
                "fatal",
                f"{method} {url} was not sent: its body is more than this call may send (`http_request_bytes`), or "
                "has another length than its header says",
            )
        case "HTTP-response-body-size":
            return RequestFailed(
                "fatal", f"what {url} answered is more than this call may receive (`http_response_bytes`)"
            )
        case "DNS-timeout" | "destination-unavailable" | "connection-refused" | "connection-timeout":
            return RequestFailed("retryable", f"{url} did not answer: {name}")
        # The host ends a body with the first of these where the module's time passed, with the second in its own.
        case "connection-read-timeout" | "HTTP-response-timeout" if is_late or (
            timeout is not None and name == "connection-read-timeout"
        ):
            why = f"it took longer than the {timeout:g} s that the module gave it"
            return broke_off(method, url, why, TimedOut)
        case (
            "connection-terminated"
            | "connection-read-timeout"
            | "connection-write-timeout"
            | "HTTP-response-incomplete"
            | "HTTP-response-timeout"
        ):
            return broke_off(method, url, name)
        case _:
            said = getattr(code, "value", None)
            return RequestFailed("fatal", f"{method} {url} failed: {said if isinstance(said, str) else name}")


def broke_off(method: str, url: str, why: str, kind: type = RequestFailed) -> RequestFailed:
    """The server had the request, or a part of it."""
    if method in REPEATABLE:
        return kind("retryable", f"{method} {url} broke off: {why}")
    return kind(
        "fatal",
        f"{method} {url} broke off: {why}. The server may have carried it out: look before it is sent again",
    )


urllib.request.install_opener(urllib.request.build_opener(Handler, StatusHandler))
