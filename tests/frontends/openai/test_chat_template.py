"""Templates of chats: where they are found, what they may use, and their errors."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from naiad.errors import InternalError, InvalidArgumentError, OptionError
from naiad.frontends.openai.chat_template import ChatTemplate, load_chat_template

HELLO = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def render(template: str, messages: list[dict[str, Any]] = HELLO, tools: list[dict[str, Any]] | None = None) -> str:
    return ChatTemplate({"default": template}, {"eos_token": "</s>"}).render(messages, tools or [])


def written(folder: Path, **files: object) -> str:
    """A tokenizer with these files; ``__`` stands for the dot of a name."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)
    return str(folder)


def prompt(tokenizer: str, template_file: str = "", tools: list[dict[str, Any]] | None = None) -> str:
    found = load_chat_template(tokenizer, template_file)
    assert found is not None
    return found.render(HELLO, tools or [])


def test_what_templates_may_use() -> None:
    assert render("{{ messages[0]['content'] }}{{ eos_token }}{{ add_generation_prompt }}") == "hi</s>True"
    assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert render("{{ [1] | tojson(indent=1) }}") == "[\n 1\n]"
    assert render("{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}") == "1"
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}!") == "hi!"
    assert render("{{ tools is none }}") == "True"
    assert render("{{ tools | length }}", tools=TOOLS) == "1"
    assert render("{{ strftime_now('%Y') }}") == str(datetime.now().year)
    # Lines that hold nothing but a block leave no line.
    assert render("{% if true %}\n  a\n  {% endif %}\nb") == "  a\nb"


def test_a_template_refuses_messages() -> None:
    with pytest.raises(InvalidArgumentError, match="refuses the messages: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize("template", ["{{ messages[5].content.x }}", "{{ 1 + 'a' }}", "{{ nothing.a }}", "{{ 1 / 0 }}"])
def test_a_template_that_fails(template: str) -> None:
    with pytest.raises(InternalError, match="the chat template failed"):
        render(template)


def test_a_template_cannot_leave_its_sandbox() -> None:
    with pytest.raises(InternalError, match="the chat template failed"):
        render("{{ ''.__class__.__mro__[1].__subclasses__() }}")


def test_a_template_that_is_none() -> None:
    with pytest.raises(OptionError, match="is no Jinja template"):
        render("{% if %}")


def test_where_a_template_is_found(tmp_path: Path) -> None:
    config = {"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<s>"}}
    tokenizer = written(tmp_path, tokenizer_config__json=config)
    assert prompt(tokenizer) == "config <s>"
    written(tmp_path, chat_template__json={"chat_template": "json"})
    assert prompt(tokenizer) == "json"
    written(tmp_path, chat_template__jinja="file {{ eos_token }}", special_tokens_map__json={"eos_token": "</s>"})
    assert prompt(tokenizer) == "file </s>"
    own = tmp_path / "own.jinja"
    own.write_text("own {{ bos_token }}")
    assert prompt(tokenizer, str(own)) == "own <s>"
    assert prompt("", str(own)) == "own "
    assert load_chat_template("", "") is None


def test_a_template_for_conversations_with_tools(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    tokenizer = written(tmp_path, tokenizer_config__json={"chat_template": templates})
    assert (prompt(tokenizer), prompt(tokenizer, tools=TOOLS)) == ("plain", "tools")


def test_a_tokenizer_without_a_template(tmp_path: Path) -> None:
    tokenizer = written(tmp_path, tokenizer_config__json={})
    with pytest.raises(InternalError, match="Cannot use chat template"):
        prompt(tokenizer)


def test_folders_that_are_no_tokenizers(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="has none of tokenizer_config"):
        load_chat_template(str(tmp_path), "")
    with pytest.raises(OptionError, match=r"there is no folder '\./nowhere'"):
        load_chat_template("./nowhere", "")
    tokenizer = written(tmp_path, tokenizer_config__json="{")
    with pytest.raises(OptionError, match=re.escape(f"'{tmp_path}/tokenizer_config.json' is no JSON")):
        load_chat_template(tokenizer, "")


def test_a_tokenizer_from_the_cache_of_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--own--talker"
    snapshot = repository / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c0ffee")
    written(snapshot, tokenizer_config__json={"chat_template": "cached"})
    assert prompt("own/talker") == "cached"
    with pytest.raises(OptionError, match="'own/other' is no folder here, and Hugging Face cannot be reached"):
        load_chat_template("own/other", "")
