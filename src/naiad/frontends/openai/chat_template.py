"""``ChatTemplate``: makes a prompt of a conversation, as the tokenizer of a language model says.

A tokenizer of Hugging Face has a Jinja template for it. The rules for such templates (filters, functions, tags) are
those of the library transformers, which is not needed here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import InternalError, InvalidArgumentError, OptionError
from naiad.extras import how_to_install

if TYPE_CHECKING:
    from jinja2 import Environment, Template

_CONFIG: Final = "tokenizer_config.json"
_TEMPLATE_FILE: Final = "chat_template.jinja"
_TEMPLATE_JSON: Final = "chat_template.json"
_SPECIAL_TOKENS: Final = "special_tokens_map.json"
_FILES: Final = (_CONFIG, _TEMPLATE_FILE, _TEMPLATE_JSON, _SPECIAL_TOKENS)
_TOKENS: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_DEFAULT: Final = "default"
_FOR_TOOLS: Final = "tool_use"


class ChatTemplate:
    """The templates of one tokenizer. Used in threads too.

    Args:
        templates: by name; ``default`` is for any conversation, ``tool_use`` for one with tools.
        tokens: the special tokens that templates name.
    """

    def __init__(self, templates: Mapping[str, str], tokens: Mapping[str, str]) -> None:
        environment = _environment()
        self._templates = {name: _compiled(environment, name, text) for name, text in templates.items()}
        self._tokens = dict(tokens)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        """The prompt that ends where the model's turn begins.

        Raises:
            InvalidArgumentError: the template refuses the conversation.
            InternalError: there is no template, or it fails.
        """
        template = (self._templates.get(_FOR_TOOLS) if tools else None) or self._templates.get(_DEFAULT)
        if template is None:
            raise InternalError(
                "Cannot use chat template functions because the tokenizer has no chat template: name a file with one "
                "by --chat-template"
            )
        try:
            return template.render(
                messages=messages, tools=list(tools) or None, documents=None, add_generation_prompt=True, **self._tokens
            )
        except _RefusedError as error:
            raise InvalidArgumentError(f"the chat template refuses the messages: {error}") from None
        except Exception as error:
            # A template is a program, which may fail in any way.
            raise InternalError(f"the chat template failed: {type(error).__name__}: {error}") from None


class _RefusedError(Exception):
    """A template has called ``raise_exception``."""


def _compiled(environment: Environment, name: str, text: str) -> Template:
    from jinja2 import TemplateError

    try:
        return environment.from_string(text)
    except TemplateError as error:
        raise OptionError(f"the chat template '{name}' is no Jinja template: {error}") from None


def _environment() -> Environment:
    try:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise OptionError(f"chat templates need jinja2 ({error}); run: {how_to_install('openai')}") from None
    from naiad.frontends.openai.generation_tag import GenerationTag

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own escapes what HTML does not allow.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: object) -> None:
    raise _RefusedError(str(message))


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def load_chat_template(tokenizer: str, template_file: str) -> ChatTemplate | None:
    """The template of a tokenizer: a folder with its files, or its name on Hugging Face.

    Args:
        tokenizer: "" for none.
        template_file: a file with a Jinja template in its place; "" for none.

    Returns:
        None without both.

    Raises:
        OptionError: a file is missing or wrong, or a library is.
    """
    if not tokenizer and not template_file:
        return None
    find = _finder(tokenizer) if tokenizer else lambda name: None
    config = _object(find(_CONFIG))
    templates = _templates(config, find)
    if template_file:
        templates = {_DEFAULT: _text(Path(template_file), "--chat-template")}
    return ChatTemplate(templates, _special_tokens(config, _object(find(_SPECIAL_TOKENS))))


def _finder(tokenizer: str) -> Callable[[str], Path | None]:
    """What finds a file of the tokenizer; None for one that it does not have."""
    folder = Path(tokenizer)
    if folder.is_dir():
        if not any((folder / name).is_file() for name in _FILES):
            raise OptionError(f"--tokenizer: the folder '{tokenizer}' has none of {', '.join(_FILES)}")
        return lambda name: folder / name if (folder / name).is_file() else None
    if tokenizer.startswith((".", "/", "~")):
        raise OptionError(f"--tokenizer: there is no folder '{tokenizer}'")
    from naiad.frontends.openai.hub_files import hub_finder

    return hub_finder(tokenizer)


def _templates(config: Mapping[str, Any], find: Callable[[str], Path | None]) -> dict[str, str]:
    """The templates by their names. A file of its own counts before the one in the configuration."""
    path = find(_TEMPLATE_FILE)
    if path is not None:
        return {_DEFAULT: _text(path, "--tokenizer")}
    found = _object(find(_TEMPLATE_JSON)).get("chat_template") or config.get("chat_template")
    if isinstance(found, str):
        return {_DEFAULT: found}
    if isinstance(found, list):
        return {one["name"]: one["template"] for one in found if isinstance(one, dict) and one.keys() >= _NAMED}
    return {}


_NAMED: Final = frozenset({"name", "template"})


def _special_tokens(*sources: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _TOKENS:
        for source in sources:
            token = source.get(name)
            # With its properties it is an object.
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                found.setdefault(name, token)
    return found


def _object(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(_text(path, "--tokenizer"))
    except ValueError as error:
        raise OptionError(f"--tokenizer: '{path}' is no JSON: {error}") from None
    return found if isinstance(found, dict) else {}


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{option}: '{path}' cannot be read: {error}") from None
