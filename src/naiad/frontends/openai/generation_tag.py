"""The tag ``{% generation %}`` of chat templates: it marks what the model itself said, which only training needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2.ext import Extension
from jinja2.nodes import Scope

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import Node
    from jinja2.parser import Parser


class GenerationTag(Extension):
    """Writes the text between the tags as it is."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> Node:
        """The nodes of one pair of tags."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return Scope(body, lineno=line)
