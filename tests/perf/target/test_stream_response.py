"""What the generator reads of the messages of a stream."""

from __future__ import annotations

import pytest

from naiad.config.messages import message_class
from naiad.perf.target.stream_response import read_stream_response


def encoded(error: str = "", outputs: int = 0, **parameters: object) -> bytes:
    """A ``ModelStreamInferResponse``."""
    message = message_class("ModelStreamInferResponse")(error_message=error)
    response = message.infer_response
    response.model_name, response.id = "m", "7"
    for name, value in parameters.items():
        kind = "bool_param" if isinstance(value, bool) else "string_param"
        setattr(response.parameters[name], kind, value)
    for number in range(outputs):
        response.outputs.add(name=f"O{number}", datatype="FP32", shape=[1])
        response.raw_output_contents.append(b"\x0a\xff\xff\xff")
    return bytes(message.SerializeToString())


@pytest.mark.parametrize("outputs", [0, 1, 3])
@pytest.mark.parametrize("final", [None, False, True])
def test_whether_it_is_the_last_and_whether_it_is_empty(outputs: int, final: bool | None) -> None:
    marks = {} if final is None else {"triton_final_response": final}
    found = read_stream_response(encoded(outputs=outputs, other="triton_final", **marks))
    assert (found.is_final, found.is_empty, found.error) == (final is True, outputs == 0, "")


def test_the_response_inside_is_given_back() -> None:
    found = read_stream_response(encoded(outputs=2))
    assert message_class("ModelInferResponse").FromString(found.infer_response).outputs[1].name == "O1"


def test_an_error_has_its_text() -> None:
    assert read_stream_response(encoded("was überall steht")).error == "was überall steht"
    assert read_stream_response(b"").is_empty


@pytest.mark.parametrize("message", [b"\x0a", b"\xff" * 11, b"\x12\x03\x0a"])
def test_bytes_that_are_no_message(message: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        read_stream_response(message)
