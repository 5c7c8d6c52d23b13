"""``DashboardStream``: sends all open pages what has changed, once a second. Without a page it does nothing.

Each page is a response of server-sent events: ``hello`` with what the caller may do, ``all`` with every row, and from
then on ``changes``. A page may ask for one model in detail (``detail``) and for the log (``log``).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

import orjson

from naiad.errors import InvalidArgumentError, NaiadError, NotFoundError, QueueFullError
from naiad.frontends.dashboard.changes import RowChanges, without_secrets
from naiad.frontends.dashboard.model_detail import ModelDetail
from naiad.frontends.dashboard.model_figures import VersionFigures
from naiad.frontends.dashboard.server_figures import ServerFigures
from naiad.frontends.dashboard.static_files import SECURITY_HEADERS
from naiad.frontends.http.server.streaming_response import StreamingResponse
from naiad.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from naiad.engine.engine import Engine
    from naiad.frontends.http.server.exchange import Exchange

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
MAX_TICK_S: Final = 5.0
MAX_SHARE: Final = 0.007
"""The share of the loop's time that reading and sending may take; with more to do it happens less often."""
MAX_PAGES: Final = 16
"""Pages that are open at the same time; a further one is refused."""
MAX_LOG_BYTES: Final = 6000
"""What the log adds to the events of a second; older lines of a burst are left out."""
EVENTS: Final = "text/event-stream"


class Page:
    """One open page: its response, and what it asked for. The connection calls ``cancel`` when it is gone."""

    def __init__(self, stream: DashboardStream, exchange: Exchange, allowed: frozenset[str]) -> None:
        self.id = secrets.token_urlsafe(16)
        self.allowed = allowed
        self.model = ("", "")
        self.detail = ModelDetail()
        self.log_from: int | None = None
        self.needs_all = False
        self._stream = stream
        self._response = StreamingResponse(exchange, 200, EVENTS, SECURITY_HEADERS)
        exchange.owner = self

    def cancel(self) -> None:
        """The page is closed."""
        self._stream.leave(self)
        # The peer may have closed its side alone: the connection waits for the end of the response.
        self.end()

    @property
    def is_behind(self) -> bool:
        """Whether it takes its events too slowly, so that some are left out."""
        return self._response.is_behind

    def send(self, event: str, data: bytes) -> None:
        """Send an event, whose data has no line breaks."""
        self._response.send(b"event: %b\ndata: %b\n\n" % (event.encode(), data))

    def end(self) -> None:
        """End the response."""
        self._response.end()


class DashboardStream:
    """The open pages and what they get. Belongs to the event loop; ``close`` ends all pages.

    Args:
        description: what ``hello`` tells about the server.
    """

    def __init__(self, engine: Engine, description: Mapping[str, Any]) -> None:
        self._engine = engine
        self._description = description
        self._pages: dict[str, Page] = {}
        self._figures = VersionFigures(engine)
        self._server: ServerFigures | None = None
        self._changes = RowChanges()
        self._timer: asyncio.TimerHandle | None = None

    def open(self, exchange: Exchange, allowed: frozenset[str], needs_key: bool) -> None:
        """Answer ``exchange`` with events until its peer leaves.

        Raises:
            QueueFullError: too many pages are open.
        """
        if len(self._pages) >= MAX_PAGES:
            raise QueueFullError(f"{MAX_PAGES} pages of the dashboard are open, which is the limit: close one of them")
        if not self._pages:
            self._begin()
        page = Page(self, exchange, allowed)
        self._pages[page.id] = page
        hello = {
            "page": page.id,
            "name": self._engine.server_metadata()["name"],
            "version": __version__,
            "allowed": sorted(allowed),
            "keys": needs_key,
            **self._description,
        }
        page.send("hello", orjson.dumps(hello))
        self._send_all(page)

    def choose(self, page_id: str, wanted: Mapping[str, Any]) -> None:
        """Change what a page gets beside the rows: ``model`` and ``version`` in detail, ``log`` true or false.

        Raises:
            NotFoundError: there is no such page.
            InvalidArgumentError: a value has a wrong type.
        """
        page = self._pages.get(page_id)
        if page is None:
            raise NotFoundError("this page of the dashboard is not open any more: load it again")
        model, version, shows_log = wanted.get("model", ""), wanted.get("version", ""), wanted.get("log", False)
        if not (isinstance(model, str) and isinstance(version, str) and isinstance(shows_log, bool)):
            raise InvalidArgumentError("expected texts as 'model' and 'version', and true or false as 'log'")
        if (model, version) != page.model:
            page.model = (model, version)
            page.detail = ModelDetail()
            self._send_detail(page)
        if shows_log and "logging" in page.allowed:
            if page.log_from is None:
                page.log_from = 0
                self._send_log(page)
        else:
            page.log_from = None

    def leave(self, page: Page) -> None:
        """Forget a page that is closed; with the last one everything stops."""
        self._pages.pop(page.id, None)
        if not self._pages:
            self._stop()

    def close(self) -> None:
        """End all pages."""
        for page in list(self._pages.values()):
            page.end()
        self._pages.clear()
        self._stop()

    def _begin(self) -> None:
        self._server = ServerFigures(self._engine)
        self._changes = RowChanges()
        self._changes.update(self._figures.read())
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._server = None
            self._figures.forget()

    def _tick(self) -> None:
        if self._engine.exiting:
            # The server waits for its responses to end.
            self.close()
            return
        begun_s = thread_time()
        try:
            self.update()
        except Exception:
            # The next second is another attempt: the page must not stand still for ever.
            log.exception("the dashboard could not be brought up to date")
        # Of very many models the figures come less often.
        wait_s = max(TICK_S, (thread_time() - begun_s) / MAX_SHARE)
        # The last page may have been dropped meanwhile.
        if self._pages:
            self._timer = asyncio.get_running_loop().call_later(min(wait_s, MAX_TICK_S), self._tick)

    def update(self) -> None:
        """Read the figures, and send what changed to all pages."""
        changes = self._changes.update(self._figures.read()) | {"server": self._read_server()}
        encoded: dict[bool, bytes] = {}
        for page in list(self._pages.values()):
            if page.is_behind:
                page.needs_all = True
                continue
            if page.needs_all:
                page.needs_all = False
                self._send_all(page)
            else:
                may_see = "model-repository" in page.allowed
                if may_see not in encoded:
                    encoded[may_see] = orjson.dumps(changes if may_see else without_secrets(changes))
                page.send("changes", encoded[may_see])
            self._send_detail(page)
            self._send_log(page)

    def _read_server(self) -> dict[str, Any]:
        return {} if self._server is None else self._server.read()

    def _send_all(self, page: Page) -> None:
        found = self._changes.all() | {"server": self._read_server()}
        page.send("all", orjson.dumps(found if "model-repository" in page.allowed else without_secrets(found)))

    def _send_detail(self, page: Page) -> None:
        name, version = page.model
        if not name:
            return
        try:
            model = next((m for m in self._engine.loaded_models() if (m.name, str(m.version)) == (name, version)), None)
        except NaiadError:
            model = None
        if model is not None:
            page.send("detail", orjson.dumps({"n": name, "v": version, **page.detail.read(model)}))

    def _send_log(self, page: Page) -> None:
        if page.log_from is None:
            return
        lines = self._engine.log.recent.after(page.log_from)
        if not lines:
            return
        shown: list[tuple[int, str]] = []
        room = MAX_LOG_BYTES if page.log_from else 10 * MAX_LOG_BYTES
        for line in reversed(lines):
            room -= len(line.text) + 16
            if room < 0:
                break
            # A line may hold characters that UTF-8 cannot encode.
            shown.append((line.level, line.text.encode("utf-8", "backslashreplace").decode()))
        page.log_from = lines[-1].number
        page.send("log", orjson.dumps({"lines": shown[::-1], "skipped": len(lines) - len(shown)}))
