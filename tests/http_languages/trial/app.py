"""Requests as authors write them, with what they forget."""

import urllib.error
import urllib.request
from typing import Any

from toolhold import Tools, tool

MANY = 12


@tool()
def run(how: str, url: str) -> Any:
    """d"""
    match how:
        case "unread":
            # Kept, so that nothing closes them.
            responses = [urllib.request.urlopen(f"{url}/long") for _ in range(MANY)]
            return [len(response.read()) for response in responses]
        case "errors":
            failures = []
            for _ in range(MANY):
                try:
                    urllib.request.urlopen(f"{url}/busy")
                except urllib.error.HTTPError as error:
                    failures.append(error)
            return [error.code for error in failures] + [urllib.request.urlopen(f"{url}/text").status]
        case "failures":
            large = b"x" * (2 << 20)
            elsewhere = "https://elsewhere.example/x"
            failures = []
            for _ in range(9):
                for target, data in ((f"{url}/cut", b"x"), (f"{url}/sent", large), (elsewhere, b"x")):
                    try:
                        urllib.request.urlopen(target, data=data).read()
                    except urllib.error.URLError as error:
                        failures.append(error)
            return [len(failures), urllib.request.urlopen(f"{url}/text").status]
        case "timeout of a large body":
            return urllib.request.urlopen(f"{url}/slow", data=bytes(12 << 20), timeout=0.3).status
        case "the host's time":
            try:
                return urllib.request.urlopen(f"{url}/slow", timeout=30).status
            except urllib.error.URLError as error:
                return str(error)
        case "a timeout in the body":
            return len(urllib.request.urlopen(f"{url}/rest", timeout=0.3).read())
        case "timeout":
            try:
                urllib.request.urlopen(f"{url}/slow", timeout=0.3)
            except TimeoutError as error:
                return isinstance(error, urllib.error.URLError)
        case "a timeout that nothing catches":
            return urllib.request.urlopen(f"{url}/slow", timeout=0.3).status
        case "a post that nothing catches":
            return urllib.request.urlopen(f"{url}/slow", data=b"x", timeout=0.3).status
        case "a status that nothing catches":
            return urllib.request.urlopen(f"{url}/busy").status
        case "a denial that nothing catches":
            return urllib.request.urlopen("https://elsewhere.example/x").status
        case "a mistake":
            return {}["missing"]
        case _:
            return mistake(how, url)


def mistake(how: str, url: str) -> str:
    try:
        match how:
            case "read after close":
                response = urllib.request.urlopen(f"{url}/text")
                response.close()
                response.read()
            case "a text as data":
                urllib.request.urlopen(f"{url}/sent", data="text")
            case "a number as data":
                urllib.request.urlopen(f"{url}/sent", data=5)
            case "a header beyond Latin-1":
                urllib.request.urlopen(urllib.request.Request(url, headers={"x": "€"}))
            case "a header's name beyond ASCII":
                urllib.request.urlopen(urllib.request.Request(url, headers={"ü": "x"}))
            case "a header with a line's end":
                urllib.request.urlopen(urllib.request.Request(url, headers={"x": "a\r\nb: c"}))
    except Exception as error:
        return type(error).__name__
    return "nothing"
