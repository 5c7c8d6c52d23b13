"""Reads a configuration written as YAML into entries that know their lines, and into plain data.

Only YAML's plain types are read. Aliases are followed, within the limits of ``entries.Budget``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from naiad.config.parsing.entries import Budget, Entry, EntrySyntaxError, ValueSyntax

if TYPE_CHECKING:
    import yaml


def read_yaml_entries(text: str) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """The fields of the YAML mapping ``text``, as entries and as plain data; an empty text has none.

    Raises:
        EntrySyntaxError: not YAML, not a mapping, a key given twice, or nested too deep.
    """
    import yaml

    try:
        # Makes no objects of Python, whatever tags the text has.
        loader = yaml.SafeLoader(text)
        # Nodes alone: an alias is one shared node, and ``members`` counts what it stands for before data is made of it.
        node = loader.get_single_node()
        if node is None:
            return (), {}
        if not isinstance(node, yaml.MappingNode):
            raise EntrySyntaxError("expected fields: 'name: value'", *_place(node))
        reader = _YamlReader(loader)
        return reader.members(node, 0), reader.data(node)
    except RecursionError:
        raise EntrySyntaxError("nested too deep", 1, 1) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise EntrySyntaxError(str(error.problem or error.context), line, column) from None
    except yaml.YAMLError as error:
        raise EntrySyntaxError(" ".join(str(error).split()), 1, 1) from None
    except ValueError as error:
        # A date such as 2020-13-45 is written well but is no date.
        raise EntrySyntaxError(f"{error}: put it in quotes", 1, 1) from None


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


class _YamlReader:
    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._budget = Budget()

    def members(self, node: yaml.MappingNode, depth: int) -> tuple[Entry, ...]:
        """One entry per key of ``node``, or per element where the value is a list."""
        entries: list[Entry] = []
        seen: set[str] = set()
        for key, value in node.value:
            # The text as written: YAML takes keys such as ``1`` or ``on`` for numbers and booleans.
            name = str(key.value)
            if name == "<<":
                raise EntrySyntaxError("merge keys ('<<') are not supported: write the fields out", *_place(key))
            if name in seen:
                raise EntrySyntaxError(f"the key '{name}' is given twice", *_place(key))
            seen.add(name)
            entries += self._entries(name, value, depth + 1, listed=False)
        return tuple(entries)

    def data(self, node: yaml.Node) -> Any:
        """``node`` as dictionaries, lists and scalars. Safe to call only after ``members`` has bounded its size."""
        import yaml

        if isinstance(node, yaml.MappingNode):
            return {str(key.value): self.data(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [self.data(element) for element in node.value]
        return self._loader.construct_object(node, deep=True)

    def _entries(self, name: str, node: yaml.Node, depth: int, *, listed: bool) -> list[Entry]:
        import yaml

        line, column = _place(node)
        self._budget.take(depth, line, column)
        if isinstance(node, yaml.MappingNode):
            return [Entry(name, line, column, ValueSyntax.MESSAGE, None, self.members(node, depth), listed)]
        if isinstance(node, yaml.SequenceNode):
            if listed:
                raise EntrySyntaxError("found a list inside a list, expected one list", line, column)
            lists = [self._entries(name, element, depth + 1, listed=True) for element in node.value]
            return [entry for entries in lists for entry in entries] or [Entry(name, line, column, ValueSyntax.EMPTY)]
        value = self._loader.construct_object(node, deep=True)
        syntax = ValueSyntax.EMPTY if value is None else ValueSyntax.DATA
        return [Entry(name, line, column, syntax, value, (), listed)]
