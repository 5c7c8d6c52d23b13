"""What the options say about this API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from naiad.frontends.openai.chat_template import ChatTemplate, load_chat_template
from naiad.wire.openai.tool_calls.calls import ToolCallFormat
from naiad.wire.openai.tool_calls.formats import FORMATS

if TYPE_CHECKING:
    from naiad.options import ServerOptions


@dataclass(frozen=True, slots=True)
class OpenAiSettings:
    """The settings of the API.

    Attributes:
        template: makes prompts of chats; None without a tokenizer.
        kind: how all models take their requests, ``vllm`` or ``tensorrtllm``; "" for each as it says.
        max_tokens: the most tokens to generate where a request does not say.
        separator: between a model's name and that of an adapter; "" for no adapters.
        calls: reads calls of tools in what models generate; None to leave the text as it is.
        max_call_bytes: the most bytes of a streamed text in which calls are looked for.
        loads: models may be loaded and unloaded by requests.
    """

    template: ChatTemplate | None
    kind: str
    max_tokens: int
    separator: str
    calls: ToolCallFormat | None
    max_call_bytes: int
    loads: bool


def openai_settings(options: ServerOptions) -> OpenAiSettings:
    """The settings that the options ask for.

    Raises:
        OptionError: the tokenizer or the chat template cannot be used.
    """
    return OpenAiSettings(
        load_chat_template(options.tokenizer, options.chat_template),
        options.openai_backend,
        options.default_max_tokens,
        options.lora_separator,
        FORMATS[options.tool_call_parser] if options.tool_call_parser else None,
        options.max_tool_call_parse_bytes,
        loads=options.model_control_mode == "explicit",
    )
