"""Patterns of header names, the values of ``--http-header-forward-pattern``.

The syntax is the subset of RE2's that applies to header names. Matching reads a name once, character by character,
whatever the pattern: clients choose the names, and Python's backtracking expressions can take exponential time.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from naiad.bounded_dict import BoundedDict

MAX_STEPS: Final = 1000
"""The largest pattern, in steps: about one step for each character, repeated ``{n}`` times."""

_MAX_CACHED: Final = 1024
_LONGEST_CACHED: Final = 64
_CHARACTERS: Final = frozenset(map(chr, range(33, 127)))
_DIGITS: Final = frozenset(string.digits)
_WORD: Final = _DIGITS | frozenset(string.ascii_letters + "_")
_SPACE: Final = frozenset(" \t\n\r\f\v")
_ESCAPED: Final = {
    "d": _DIGITS, "D": _CHARACTERS - _DIGITS, "w": _WORD, "W": _CHARACTERS - _WORD, "s": _SPACE, "S": _CHARACTERS,
}  # fmt: skip
_MAX_REPEAT: Final = 1000
_CASE_COUNTS: Final = "(?-i)"


class Do(Enum):
    """The kinds of steps of a pattern."""

    TAKE = "take a character of the set"
    FORK = "go on at both places"
    BEGIN = "go on at the beginning"
    END = "go on at the end"
    MATCH = "found"


class PatternToken(NamedTuple):
    """One step; ``to`` are the steps that may follow, counted from this one."""

    do: Do
    to: tuple[int, ...] = (1,)
    characters: frozenset[str] = frozenset()


class HeaderPattern:
    """Finds header names in which ``text`` matches somewhere; case counts only where it begins with ``(?-i)``.

    Raises:
        ValueError: the pattern is malformed, too large, or uses syntax that does not apply to header names.
    """

    __slots__ = ("_moves", "_results", "_start", "_steps", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = [*_Parser(text).parse(), PatternToken(Do.MATCH)]
        self._start = self._reach({0}, {Do.BEGIN})
        # Both are bounded, since clients choose the names.
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = BoundedDict(_MAX_CACHED)
        self._results: dict[str, bool] = BoundedDict(_MAX_CACHED)

    def matches(self, name: str) -> bool:
        """Whether the pattern is found in a header name."""
        found = self._results.get(name)
        if found is None:
            found = self._search(name)
            # The cache bounds its entries and not their bytes, and clients choose the names.
            if len(name) <= _LONGEST_CACHED:
                self._results[name] = found
        return found

    def _search(self, name: str) -> bool:
        final = len(self._steps) - 1
        state = self._start
        for character in name:
            if final in state:
                return True
            move = (state, character)
            # ``or`` is enough: a set of steps is never empty, since a match may begin anywhere.
            state = self._moves.get(move) or self._move(*move)
        return final in state or final in self._reach(state, {Do.END})

    def _move(self, state: frozenset[int], character: str) -> frozenset[int]:
        taken = {at + 1 for at in state if character in self._steps[at].characters}
        # A match may begin anywhere.
        found = self._reach(taken | {0}, frozenset())
        self._moves[(state, character)] = found
        return found

    def _reach(self, places: Iterable[int], passed: Iterable[Do]) -> frozenset[int]:
        """All steps that can be reached without a character; ``passed`` are the anchors that hold here."""
        found: set[int] = set()
        waiting = list(places)
        while waiting:
            at = waiting.pop()
            if at in found:
                continue
            found.add(at)
            step = self._steps[at]
            if step.do is Do.FORK or step.do in passed:
                waiting += [at + by for by in step.to]
        return frozenset(found)


class _Parser:
    """Reads a pattern into steps."""

    def __init__(self, text: str) -> None:
        self._cases = _own_case if text.startswith(_CASE_COUNTS) else _both_cases
        # ``(?i)`` is the default here.
        self._text = text.removeprefix(_CASE_COUNTS).removeprefix("(?i)")
        self._at = 0

    def parse(self) -> list[PatternToken]:
        try:
            steps = self._alternatives()
        except RecursionError:
            raise self._error("the groups are too deep") from None
        if self._at < len(self._text):
            raise self._error("there is no '(' for the ')'")
        return steps

    def _taking(self, characters: Iterable[str]) -> PatternToken:
        return PatternToken(Do.TAKE, characters=self._cases(characters))

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        found = self._peek()
        if not found:
            raise self._error("it ends too early")
        self._at += 1
        return found

    def _error(self, what: str) -> ValueError:
        return ValueError(f"Invalid pattern of header names. Got {self._text[:80]}: {what} at character {self._at}")

    def _checked(self, steps: list[PatternToken]) -> list[PatternToken]:
        if len(steps) > MAX_STEPS:
            raise self._error(f"it needs more than {MAX_STEPS} steps")
        return steps

    def _alternatives(self) -> list[PatternToken]:
        found = self._sequence()
        while self._peek() == "|":
            self._at += 1
            other = self._sequence()
            found = [
                PatternToken(Do.FORK, (1, len(found) + 2)),
                *found,
                PatternToken(Do.FORK, (len(other) + 1,)),
                *other,
            ]
        return self._checked(found)

    def _sequence(self) -> list[PatternToken]:
        found: list[PatternToken] = []
        while self._peek() and self._peek() not in "|)":
            found += self._repeated(self._one())
            self._checked(found)
        return found

    def _one(self) -> list[PatternToken]:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return [self._taking(self._set())]
        if character in "^$":
            return [PatternToken(Do.BEGIN if character == "^" else Do.END)]
        if character in "*+?":
            raise self._error(f"there is nothing to repeat before '{character}'")
        if character == "\\":
            return self._escape()
        return [self._taking(_CHARACTERS if character == "." else {character})]

    def _group(self) -> list[PatternToken]:
        if self._peek() == "?":
            self._at += 1
            self._group_kind()
        found = self._alternatives()
        if self._next() != ")":
            raise self._error("a ')' is missing")
        return found

    def _group_kind(self) -> None:
        """Read the flags between ``(?`` and the content of a group."""
        kind = self._next()
        if kind == "P" and self._next() == "<":
            while self._next() != ">":
                pass
        elif kind != ":":
            raise self._error("only the groups '(...)', '(?:...)' and '(?P<name>...)' are known")

    def _escape(self) -> list[PatternToken]:
        character = self._next()
        if character in "Az":
            return [PatternToken(Do.BEGIN if character == "A" else Do.END)]
        return [self._taking(self._escaped(character))]

    def _escaped(self, character: str) -> frozenset[str]:
        if character.isalnum() and character not in _ESCAPED:
            raise self._error(f"'\\{character}' is not known")
        return _ESCAPED.get(character, frozenset(character))

    def _set(self) -> frozenset[str]:
        negated = self._peek() == "^"
        self._at += negated
        # Before the loop: a "]" right behind "[" is a member.
        found = self._set_member()
        while self._peek() != "]":
            found |= self._set_member()
        self._at += 1
        # Case is ignored, so an excluded character excludes its other case too.
        return _CHARACTERS - self._cases(found) if negated else found

    def _set_member(self) -> frozenset[str]:
        first = self._next()
        if first == "[" and self._peek() == ":":
            raise self._error("named sets are not known")
        found = self._escaped(self._next()) if first == "\\" else frozenset(first)
        if len(found) > 1 or self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return found
        self._at += 1
        last = self._next()
        if last == "\\":
            last = self._next()
        (low,) = found
        if low > last:
            raise self._error(f"the range {low}-{last} is the wrong way round")
        return frozenset(c for c in _CHARACTERS if low <= c <= last)

    def _repeated(self, steps: list[PatternToken]) -> list[PatternToken]:
        while (character := self._peek()) and character in "*+?{":
            self._at += 1
            least, most = self._counts() if character == "{" else {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[character]
            if self._peek() == "?":
                # Whether as many or as few as possible are taken changes nothing here.
                self._at += 1
            steps = self._times(steps, least, most)
        return steps

    def _counts(self) -> tuple[int, int]:
        """The least and the most of ``{n}``, ``{n,}`` (then -1) or ``{n,m}``."""
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at : max(end, self._at)].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high) or len(low + high) > 8:
            raise self._error("expected {n}, {n,} or {n,m}")
        self._at = end + 1
        least = int(low)
        most = least if not comma else int(high) if high else -1
        if least > _MAX_REPEAT or most > _MAX_REPEAT or 0 <= most < least:
            raise self._error(f"expected counts up to {_MAX_REPEAT}, the smaller one first")
        return least, most

    def _times(self, steps: list[PatternToken], least: int, most: int) -> list[PatternToken]:
        size = len(steps)
        # Before the copies are made, which could take much memory.
        if size * max(least, most, 1) > MAX_STEPS:
            raise self._error(f"it needs more than {MAX_STEPS} steps")
        # Copies need no change: a step counts its targets from itself.
        found = steps * least
        if most < 0:
            found = [*found, PatternToken(Do.FORK, (1, size + 2)), *steps, PatternToken(Do.FORK, (-size - 1,))]
        for left in range(most - least, 0, -1):
            found += [PatternToken(Do.FORK, (1, left * (size + 1))), *steps]
        return self._checked(found)


def _own_case(characters: Iterable[str]) -> frozenset[str]:
    return frozenset(characters)


def _both_cases(characters: Iterable[str]) -> frozenset[str]:
    return frozenset(case for c in characters for case in (c.lower(), c.upper()))
