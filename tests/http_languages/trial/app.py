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
