"""Large files are cut out of the JSON of a request; what is read is the same as without."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from typing import Any

import orjson
import pytest

from naiad.errors import MalformedRequestError
from naiad.frontends.http.v2.load_body import LARGE, MAX_COMMAS, MAX_KEYS, MAX_SPACE, place, read_object

SMALL = base64.b64encode(b"a small file").decode()
BIG = base64.b64encode(bytes(range(256)) * 400).decode()
BIGGER = "QUJD" * LARGE


def read(body: bytes) -> Any:
    """The object with all contents back in their places."""
    root, cut = read_object(bytearray(body))
    contents = {place(number): str(view, "ascii") for number, view in enumerate(cut)}

    def put_back(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: put_back(element) for key, element in value.items()}
        return contents.get(value, value) if isinstance(value, str) else value

    return put_back(root)


@pytest.mark.parametrize(
    ("files", "cut"),
    [
        ({}, 0),
        ({"file:a": SMALL}, 0),
        ({"file:a": BIG}, 1),
        ({"file:a": BIG, "config": '{"a": "file:b"}', "file:b": SMALL, "file:c": BIGGER}, 2),
        ({"config": json.dumps({"file:x": BIG}), "file:c": BIGGER}, 1),
        ({"file:a": BIG + '"', "file:b": BIG + "\\"}, 0),
        ({"other": '"file:a":"' + BIG, "file:ü": BIG}, 1),
        ({"file:a": [BIG], "file:b": {"file:c": BIG}}, 1),
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (" ,\n", "\t: \r\n")])
def test_what_is_read_is_the_same(files: dict[str, Any], cut: int, separators: tuple[str, str]) -> None:
    for ascii in (True, False):
        body = json.dumps({"parameters": files}, separators=separators, ensure_ascii=ascii).encode()
        assert read(body) == orjson.loads(body)
        assert len(read_object(bytearray(body))[1]) <= cut
    assert len(read_object(bytearray(body))[1]) == cut


@pytest.mark.parametrize("end", ["", '"', '":', '":"', '" "', '":"' + BIG, '":"' + BIG + '"', '":"' + BIG + '"}'])
def test_what_is_no_json_stays_none(end: str) -> None:
    body = b'{"parameters": {"x": "' + b" " * LARGE + b'", "file:a' + end.encode()
    with pytest.raises(MalformedRequestError, match="failed to parse the request JSON buffer"):
        read_object(bytearray(body))


def test_an_empty_body_is_an_empty_object() -> None:
    assert read_object(bytearray()) == ({}, [])


def test_what_is_not_cut_out_is_parsed() -> None:
    many = {f"file:{number}": SMALL for number in range(MAX_KEYS)}
    for parameters in ({**many, "file:last": BIG}, {"file:first": BIG, **many}):
        body = json.dumps({"parameters": parameters}).encode()
        assert read(body) == orjson.loads(body)
    for spaces in (MAX_SPACE - 1, MAX_SPACE, MAX_SPACE + 1, 100_000):
        body = f'{{"file:a"{" " * spaces}: "{BIG}"}}'.encode()
        assert read(body) == {"file:a": BIG}


@pytest.mark.parametrize(
    "body",
    [
        b'{"file:a"' + b" " * (32 << 20) + b':"QUJD"}',
        b"[" + b'"file:' * (5 << 20) + b"]",
        b"{" + b'"file:":"",' * (3 << 20) + b'"file:":""}',
        b'{"x":[' + b"[]," * (10 << 20) + b"[]]}",
        b"{" + b",".join(b'"%d":0' % number for number in range(2 << 20)) + b"}",
    ],
)
def test_a_body_that_is_hard_to_read_holds_nobody_up(body: bytes) -> None:
    begun = time.thread_time()
    with contextlib.suppress(MalformedRequestError):
        read_object(body)
    assert time.thread_time() - begun < 0.7


def test_too_many_values_are_refused() -> None:
    body = json.dumps({"x": [0] * (MAX_COMMAS + 2)}).encode()
    with pytest.raises(MalformedRequestError, match=f"has {MAX_COMMAS + 1} commas outside of large files"):
        read_object(body)
