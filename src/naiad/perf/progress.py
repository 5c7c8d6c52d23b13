"""What a run tells whoever shows it, while it goes on."""

from __future__ import annotations

from naiad.perf.results import LevelResult, LoadLevel, Report, Second, Window
from naiad.perf.settings import PerfSettings


class Progress:
    """Hears of every stage of a run; this one shows nothing. Methods return quickly: they stop the load meanwhile."""

    def began(self, report: Report, settings: PerfSettings) -> None:
        """The server has described the model; ``report`` is the one that is being filled."""

    def waiting(self, seconds: float) -> None:
        """The first response has not come for so long; called about twice a second."""

    def warmed_up(self, seconds: float) -> None:
        """The first response came after so long."""

    def level_began(self, level: LoadLevel) -> None:
        """A level begins, with the warm-up of its places."""

    def second_passed(self, second: Second, passed_s: float, window_s: float) -> None:
        """A second of a window has passed.

        Args:
            passed_s: since the start of the window.
            window_s: the window's length; 0 when it is not known.
        """

    def window_done(self, number: int, window: Window, limit: int) -> None:
        """The window ``number``, counted from 1, of at most ``limit`` is done."""

    def stopping(self, in_flight: int) -> None:
        """The user wants the run to end; so many requests are waited for first."""

    def level_done(self, result: LevelResult) -> None:
        """A level is done."""
