"""The formats of tool calls, by the names that ``--tool-call-parser`` has for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from naiad.wire.openai.tool_calls.call_scan import CallScan
from naiad.wire.openai.tool_calls.calls import ToolCallFormat
from naiad.wire.openai.tool_calls.llama3 import Llama3Scan
from naiad.wire.openai.tool_calls.mistral import MistralScan
from naiad.wire.openai.tool_calls.stream import CallStream, read_text


def _format(scan: type[CallScan]) -> ToolCallFormat:
    return ToolCallFormat(read=partial(read_text, scan), stream=partial(CallStream, scan))


FORMATS: Final[Mapping[str, ToolCallFormat]] = {"llama3": _format(Llama3Scan), "mistral": _format(MistralScan)}
