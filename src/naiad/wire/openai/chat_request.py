"""The body of a request to ``POST /v1/chat/completions``.

Source: OpenAI's API, as far as the reference has it, whose texts the errors have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from naiad.errors import InvalidArgumentError
from naiad.wire.json_text import load_json
from naiad.wire.openai.conversation import message
from naiad.wire.openai.sampling import (
    COMMON,
    NO_LOGPROBS,
    Sampling,
    check_one_choice,
    check_stream,
    read_sampling,
)
from naiad.wire.openai.schema import (
    Member,
    Place,
    Problem,
    any_object,
    anything,
    array_of,
    flag,
    integer,
    object_of,
    one_of,
    read_members,
    text,
)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation that a model is to go on with.

    Attributes:
        model: its name, with that of an adapter where one is meant.
        messages: checked, as they came.
        tools: the functions that the model may call; empty for none.
        forced: the name of the function that it must call, "" for none.
        values: all members.
    """

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    forced: str
    sampling: Sampling
    values: Mapping[str, Any]

    @property
    def may_call(self) -> bool:
        """Whether the model itself chooses between a text and calls of tools."""
        return bool(self.tools) and self.values["tool_choice"] in (None, "auto")

    @property
    def forced_parameters(self) -> Any:
        """The JSON schema of the arguments of the forced call."""
        for tool in self.tools:
            if tool["function"]["name"] == self.forced:
                return tool["function"].get("parameters") or {}
        raise InvalidArgumentError(f"Tool '{self.forced}' has not been passed in `tools`.")

    def check(self, is_vllm: bool, reads_calls: bool) -> None:
        """Check that a model can do it, one that takes its requests as vLLM does or another one.

        ``reads_calls``: calls of tools are read out of what models generate.

        Raises:
            InvalidArgumentError: it cannot.
        """
        values = self.values
        check_one_choice(self.sampling)
        if values["logit_bias"] is not None:
            raise InvalidArgumentError("logit bias is not currently supported")
        if not is_vllm and (values["logprobs"] or values["top_logprobs"] is not None):
            raise InvalidArgumentError(NO_LOGPROBS)
        if values["top_logprobs"] is not None and not values["logprobs"]:
            raise InvalidArgumentError("`top_logprobs` can only be used when `logprobs` is True")
        self._check_tools(values["tool_choice"], reads_calls)
        check_stream(values)

    def _check_tools(self, choice: Any, reads_calls: bool) -> None:
        if not self.tools and (choice == "required" or isinstance(choice, dict)):
            which = '"required"' if choice == "required" else "Named"
            raise InvalidArgumentError(f"{which} tool choice requires CreateChatCompletionRequest.tools to be provided")
        if choice == "auto" and not reads_calls:
            raise InvalidArgumentError('"auto" tool choice requires --tool-call-parser to be set')
        if choice is None and self.tools and not reads_calls:
            raise InvalidArgumentError("having tools in the request requires --tool-call-parser to be set")
        if self.forced:
            _ = self.forced_parameters


_FUNCTION: Final = object_of({"name": Member(text, is_required=True), "parameters": Member(any_object)})
_TOOL: Final = object_of(
    {"type": Member(one_of("function"), is_required=True), "function": Member(_FUNCTION, is_required=True)}
)
_NAMED: Final = object_of({"function": Member(object_of({"name": Member(text, is_required=True)}), is_required=True)})


def _tool_choice(value: Any, place: Place) -> Iterator[Problem]:
    yield from _NAMED(value, place) if isinstance(value, dict) else one_of("none", "auto", "required")(value, place)


_RESPONSE_FORMAT: Final = object_of(
    {
        "type": Member(one_of("text", "json_object", "json_schema"), is_required=True),
        "json_schema": Member(object_of({"schema": Member(any_object)})),
    }
)
_MEMBERS: Final[Mapping[str, Member]] = {
    "messages": Member(array_of(message, least=1), is_required=True),
    "model": Member(text, is_required=True),
    "function_call": Member(anything),
    "functions": Member(anything),
    "logprobs": Member(flag, False),
    "top_logprobs": Member(integer(0, 20)),
    "max_completion_tokens": Member(integer(0)),
    "parallel_tool_calls": Member(flag),
    "response_format": Member(_RESPONSE_FORMAT),
    "tools": Member(array_of(_TOOL)),
    "tool_choice": Member(_tool_choice),
    **COMMON,
    # The reference's own default; OpenAI's is 1.
    "temperature": COMMON["temperature"]._replace(default=0.7),
}


def read_chat(raw: bytes | bytearray | memoryview) -> ChatRequest:
    """The request in the body ``raw``.

    Raises:
        SchemaError: a member is missing, unknown, of the wrong type or out of its limits.
        MalformedRequestError: it is no JSON.
    """
    values = read_members(load_json(raw), _MEMBERS, ("body",))
    most = values["max_completion_tokens"]
    # Its older name.
    most = values["max_tokens"] if most is None else most
    logprobs = None
    if values["logprobs"]:
        logprobs = 1 if values["top_logprobs"] is None else values["top_logprobs"]
    sampling = read_sampling(values, most, logprobs)
    tools = values["tools"] or []
    return ChatRequest(
        values["model"], values["messages"], tools, _forced(values["tool_choice"], tools), sampling, values
    )


def _forced(choice: Any, tools: list[dict[str, Any]]) -> str:
    """The name of the function that must be called: the named one; where any will do, the first one."""
    if isinstance(choice, dict):
        return str(choice["function"]["name"])
    return str(tools[0]["function"]["name"]) if choice == "required" and tools else ""
