"""`urllib.request` over `wasi:http`: the host sends a request only to an origin that was granted.

The build puts this before the module, so that `urllib.request.urlopen` works as it is.
"""

import http.client
import io
import urllib.error
import urllib.request
import urllib.response

from componentize_py_types import Err, Ok
from wit_world.imports import httpt, outgoing_handler, streams

# Most bytes of a response's body.
MOST = 16 << 20
# Bytes of a body that are sent at a time, by the definition of `blocking-write-and-flush`.
WRITE = 4096
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
    entries = [
        (name, value.encode("latin-1"))
        for name, value in headers.items()
        if name not in OF_THE_HOST
    ]
    try:
        outgoing = httpt.OutgoingRequest(httpt.Fields.from_list(entries))
        outgoing.set_method(METHODS[method]() if method in METHODS else httpt.Method_Other(method))
        outgoing.set_scheme(httpt.Scheme_Https() if request.type == "https" else httpt.Scheme_Http())
        outgoing.set_authority(request.host)
        outgoing.set_path_with_query(request.selector or "/")
    except Err as error:
        raise RequestFailed("correctable", f"{method} {url} cannot be sent: {named(error.value)}") from None
    stream = outgoing.body() if body is not None else None
    try:
        pending = outgoing_handler.handle(outgoing, timeouts(request.timeout))
    except Err as error:
        raise failed(method, url, error.value) from None
    if stream is not None:
        write(stream, body)
    with pending, pending.subscribe() as ready:
        ready.block()
        answer = pending.get()
    if not isinstance(answer, Ok):
        raise RequestFailed("fatal", f"{method} {url}: the host gave no response")
    if isinstance(answer.value, Err):
        raise failed(method, url, answer.value.value)
    return received(method, url, answer.value.value)


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


def timeouts(seconds):
    if not isinstance(seconds, (int, float)):
        return None
    options = httpt.RequestOptions()
    nanoseconds = max(0, int(seconds * 1_000_000_000))
    options.set_connect_timeout(nanoseconds)
    options.set_first_byte_timeout(nanoseconds)
    options.set_between_bytes_timeout(nanoseconds)
    return options


def write(body, data: bytes):
    try:
        with body.write() as stream:
            for start in range(0, len(data), WRITE):
                stream.blocking_write_and_flush(data[start : start + WRITE])
        httpt.OutgoingBody.finish(body, None)
    except Err:
        # Why it was refused comes in the response's place.
        pass


def received(method: str, url: str, response):
    headers = http.client.HTTPMessage()
    with response.headers() as fields:
        for name, value in fields.entries():
            headers[name] = value.decode("latin-1")
    status = response.status()
    opened = urllib.response.addinfourl(
        io.BufferedReader(Body(method, url, response)), headers, url, status
    )
    opened.msg = opened.reason = http.client.responses.get(status, "")
    return opened


class Body(io.RawIOBase):
    """A response's body, which is read as it comes."""

    def __init__(self, method: str, url: str, response):
        self.what = (method, url)
        self.size = 0
        self.response = response
        self.body = response.consume()
        self.stream = self.body.stream()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        if self.stream is None:
            return 0
        try:
            data = self.stream.blocking_read(len(buffer))
        except Err as error:
            if isinstance(error.value, streams.StreamError_Closed):
                self.release()
                return 0
            why = error.value.value.to_debug_string()
            raise broke_off(*self.what, why) from None
        self.size += len(data)
        if self.size > MOST:
            message = f"the body of {self.what[1]} has more than the {MOST >> 20} MiB that a module reads"
            raise RequestFailed("fatal", message)
        buffer[: len(data)] = data
        return len(data)

    def release(self):
        """The children before their parents."""
        if self.stream is None:
            return
        for resource in (self.stream, self.body, self.response):
            resource.__exit__(None, None, None)
        self.stream = None

    def close(self):
        if not self.closed:
            self.release()
        super().close()


def named(code) -> str:
    """`HttpRequestDenied`, and what else is known."""
    name = type(code).__name__.partition("_")[2] or type(code).__name__
    value = getattr(code, "value", None)
    return name if value is None else f"{name} ({value})"


def failed(method: str, url: str, code) -> RequestFailed:
    """What to say of an error of `wasi:http`, and whose move it is."""
    what = f"{method} {url}"
    match named(code).partition(" ")[0]:
        case "HttpRequestDenied":
            origin = "/".join(url.split("/", 3)[:3])
            return RequestFailed(
                "fatal",
                f"{what} was not granted to this module; an operator can: "
                f"toolhold modules grant MODULE --with-http {origin}",
            )
        case "DestinationIpProhibited":
            return RequestFailed("fatal", f"{url} is on a private network, which the grant does not include")
        case (
            "DnsError"
            | "DestinationNotFound"
            | "HttpRequestUriInvalid"
            | "HttpRequestUriTooLong"
            | "HttpRequestMethodInvalid"
        ):
            return RequestFailed("correctable", f"{url} cannot be reached: {named(code)}")
        case "LoopDetected":
            return RequestFailed(
                "correctable",
                f"{url} redirects more often than the grant allows; ask for the address that it leads to",
            )
        case (
            "DnsTimeout"
            | "DestinationUnavailable"
            | "ConnectionRefused"
            | "ConnectionTimeout"
            | "ConnectionLimitReached"
        ):
            return RequestFailed("retryable", f"{url} did not answer: {named(code)}")
        case (
            "ConnectionTerminated"
            | "ConnectionReadTimeout"
            | "ConnectionWriteTimeout"
            | "HttpResponseIncomplete"
            | "HttpResponseTimeout"
        ):
            return broke_off(method, url, named(code))
        case _:
            return RequestFailed("fatal", f"{what} failed: {named(code)}")


def broke_off(method: str, url: str, why: str) -> RequestFailed:
    """The server had the request, or a part of it."""
    if method in REPEATABLE:
        return RequestFailed("retryable", f"{method} {url} broke off: {why}")
    return RequestFailed(
        "fatal",
        f"{method} {url} broke off: {why}. The server may have carried it out: look before it is sent again",
    )


urllib.request.install_opener(urllib.request.build_opener(Handler))
