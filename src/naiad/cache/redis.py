"""The response cache in Redis: shared by servers, and never a reason for a request to fail or to wait for long.

Threads talk to Redis, several look-ups and insertions in one round trip. While Redis does not respond, each look-up is
a miss at once, and the threads reconnect with growing pauses.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, Final

from naiad.cache.packed import MAX_VALUE
from naiad.errors import OptionError, first_line
from naiad.extras import how_to_install
from naiad.options.redis_config import RedisSettings
from naiad.telemetry.metrics.server_statistics import CacheFigures

logger = logging.getLogger("naiad")

MAX_LOOKUPS: Final = 4096
"""The most look-ups that wait for a thread; further ones are misses."""
MAX_INSERT_BYTES: Final = 64 << 20
"""The most bytes of responses that wait to be cached; further ones are dropped."""
AT_ONCE: Final = 16
"""Commands of one round trip: that many of the largest values have to fit into memory."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
END_S: Final = 1.0
COMPLAIN_NS: Final = 60 * 1_000_000_000

Found = Any
"""The result of ``LookUp.read``; None for a miss."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """A look-up.

    Attributes:
        read: unpacks the value, in a thread.
        found: called in that thread with the result, None for a miss.
        deadline_ns: monotonic time after which the result is not needed; 0 for none.
    """

    key: str
    read: Callable[[bytes], Found]
    found: Callable[[Found], object]
    deadline_ns: int = 0

    @property
    def is_late(self) -> bool:
        """Whether the deadline is over."""
        return 0 < self.deadline_ns < monotonic_ns()


@dataclass(frozen=True, slots=True)
class Insertion:
    """An insertion. ``write`` packs the value in a thread, None for nothing to cache; ``size`` is about its bytes."""

    key: str
    write: Callable[[], bytes | None]
    size: int


class RedisCache:
    """Values in Redis by key. Called on the event loop; ``close`` ends its threads."""

    def __init__(self, settings: RedisSettings) -> None:
        """Start to connect.

        Raises:
            OptionError: the package ``redis`` is not installed.
        """
        self.settings = settings
        self.figures = CacheFigures(0)
        self._redis = _package()
        self._jobs: deque[LookUp | Insertion] = deque()
        self._wake = threading.Condition()
        self._look_ups = 0
        self._bytes = 0
        # Not ``_wake``: a notification for a job must not end the pause of a thread without a connection.
        self._end = threading.Event()
        self._up: set[int] = set()
        self._complained_ns = -COMPLAIN_NS
        self._threads = [
            threading.Thread(target=self._main, args=(number,), name=f"naiad-redis-{number}", daemon=True)
            for number in range(settings.pool_size)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_up(self) -> bool:
        """Whether any thread is connected."""
        return bool(self._up)

    def look_up(self, job: LookUp) -> bool:
        """Queue a look-up; False when Redis is down or too many look-ups wait."""
        with self._wake:
            if not self._up or self._look_ups >= MAX_LOOKUPS:
                return False
            self._look_ups += 1
            self._jobs.append(job)
            self._wake.notify()
        return True

    def insert(self, job: Insertion) -> bool:
        """Queue an insertion; False when Redis is down or too many bytes wait."""
        with self._wake:
            if not self._up or self._bytes + job.size > MAX_INSERT_BYTES:
                return False
            self._bytes += job.size
            self._jobs.append(job)
            self._wake.notify()
        return True

    def close(self) -> None:
        """End the threads; a thread that waits for Redis ends by itself."""
        with self._wake:
            self._end.set()
            self._wake.notify_all()
        for thread in self._threads:
            thread.join(END_S)

    # In the threads

    def _main(self, number: int) -> None:
        pause_s, lost = 0.0, False
        while not self._end.wait(pause_s):
            try:
                client = self._connect()
                # At the start the line of the first thread speaks for all.
                if lost or not number:
                    logger.info("the response cache in Redis at %s answers", self.settings.address)
                lost = False
                self._serve(number, client)
                break
            except Exception as error:
                with self._wake:
                    was_up = number in self._up
                    self._up.discard(number)
                if not lost:
                    logger.warning(
                        "the response cache in Redis at %s does not answer, so requests go without it: %s",
                        self.settings.address, first_line(error),
                    )  # fmt: skip
                lost = True
                # After a connection that worked the pauses begin anew.
                pause_s = FIRST_PAUSE_S if was_up else min(LONGEST_PAUSE_S, 2 * pause_s or FIRST_PAUSE_S)
                self._give_up_all()
        with self._wake:
            self._up.discard(number)
        self._give_up_all()

    def _give_up_all(self) -> None:
        """Fail all queued jobs once no thread is connected."""
        with self._wake:
            if self._up:
                return
            jobs = self._taken(len(self._jobs))
        # Outside the lock, for which the event loop may wait in ``look_up``.
        self._give_up(jobs)

    def _give_up(self, jobs: list[LookUp | Insertion]) -> None:
        self.figures.failures += len(jobs)
        for job in jobs:
            if isinstance(job, LookUp):
                job.found(None)

    def _connect(self) -> Any:
        package, found = self._redis, self.settings
        tls: dict[str, object] = {}
        if found.tls_enabled:
            tls = {
                "ssl": True,
                "ssl_certfile": found.cert or None,
                "ssl_keyfile": found.key or None,
                "ssl_ca_certs": found.cacert or None,
                "ssl_ca_path": found.cacert_dir or None,
            }
        # "default" is the user of a Redis without users, and old versions know no users.
        user = None if found.user == "default" else found.user
        client = package.Redis(
            host=found.host,
            port=found.port,
            db=found.db,
            username=user,
            password=found.password or None,
            socket_connect_timeout=found.connect_timeout_ms / 1000,
            socket_timeout=found.socket_timeout_ms / 1000,
            # With retries a look-up would take longer than ``socket_timeout``; the thread reconnects by itself.
            retry=package.retry.Retry(package.backoff.NoBackoff(), 0),
            protocol=2,
            single_connection_client=True,
            **tls,
        )
        client.ping()
        return client

    def _serve(self, number: int, client: Any) -> None:
        """Run jobs until the end, or until Redis fails."""
        with self._wake:
            self._up.add(number)
        try:
            while jobs := self._next():
                try:
                    self._run(client, jobs)
                # Each look-up calls back once, whatever ends the thread: a request waits for it.
                except BaseException:
                    self._give_up(jobs)
                    raise
        finally:
            client.close()

    def _next(self) -> list[LookUp | Insertion]:
        """Wait for the next jobs; empty at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._jobs or self._end.is_set())
            return [] if self._end.is_set() else self._taken(AT_ONCE)

    def _taken(self, most: int) -> list[LookUp | Insertion]:
        jobs: list[LookUp | Insertion] = []
        while self._jobs and len(jobs) < most:
            job = self._jobs.popleft()
            if isinstance(job, LookUp):
                self._look_ups -= 1
            else:
                self._bytes -= job.size
            jobs.append(job)
        return jobs

    def _run(self, client: Any, jobs: list[LookUp | Insertion]) -> None:
        sent: list[LookUp | Insertion] = []
        # One round trip for all; nothing has to be atomic.
        pipe = client.pipeline(transaction=False)
        for job in jobs:
            if isinstance(job, LookUp):
                if job.is_late:
                    job.found(None)
                    continue
                # At most the largest value that this server writes, whatever others have written.
                pipe.getrange(job.key, 0, MAX_VALUE)
            elif (value := self._written(job)) is not None:
                pipe.set(job.key, value)
            else:
                continue
            sent.append(job)
        if not sent:
            return
        begun_ns = monotonic_ns()
        # An error of one command, such as a key of another type, must not cost the results of the others.
        replies = pipe.execute(raise_on_error=False)
        took_ns = (monotonic_ns() - begun_ns) // len(sent)
        # Read all before the first callback: when reading one fails, ``_give_up`` calls all of them.
        self._report([(job, self._read(job, reply, took_ns)) for job, reply in zip(sent, replies, strict=True)])

    def _report(self, results: list[tuple[LookUp | Insertion, Found]]) -> None:
        for job, value in results:
            if isinstance(job, LookUp):
                job.found(value)

    def _read(self, job: LookUp | Insertion, reply: object, took_ns: int) -> Found:
        figures = self.figures
        if isinstance(job, Insertion):
            figures.insertion_ns += took_ns
            if isinstance(reply, Exception):
                self._complain("kept", reply)
            return None
        figures.lookup_ns += took_ns
        if isinstance(reply, bytes) and reply:
            try:
                return job.read(reply)
            except Exception as error:
                self._complain("read", error)
        elif isinstance(reply, Exception):
            self._complain("read", reply)
        return None

    def _written(self, job: Insertion) -> bytes | None:
        try:
            return job.write()
        except Exception as error:
            self._complain("written", error)
            return None

    def _complain(self, what: str, error: Exception) -> None:
        self.figures.failures += 1
        now_ns = monotonic_ns()
        if now_ns - self._complained_ns >= COMPLAIN_NS:
            self._complained_ns = now_ns
            text = "an answer could not be %s in the response cache (said once a minute): %s"
            logger.warning(text, what, first_line(error))


def _package() -> Any:
    try:
        import redis
        import redis.backoff
        import redis.retry
    except ImportError:
        raise OptionError(
            f"--cache-config redis needs the package redis, which is not installed; run: {how_to_install('redis')}"
        ) from None
    return redis
