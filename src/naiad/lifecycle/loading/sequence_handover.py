"""Sequences that are under way when another load takes the place of the versions that they run on."""

from __future__ import annotations

from collections.abc import Sequence

from naiad.execution.sequence.model import SequenceModel
from naiad.lifecycle.state.model_table import VersionEntry


def hand_over(before: Sequence[VersionEntry], ready: Sequence[VersionEntry]) -> None:
    """Let sequences on versions that are about to go on there to their ends.

    Whoever serves then passes their requests on, if its tensors are the same; a version that is not named by requests
    may be replaced by one of another number.
    """
    gone = [version.model for version in before]
    for version in ready:
        model = version.model
        if isinstance(model, SequenceModel) and model not in gone:
            for old in gone:
                if isinstance(old, SequenceModel):
                    model.follow(old)
