"""The options of the reference that this version does not have, so that they get a clear answer.

Delete a name here when the option is added to ``server.py``.
"""

from __future__ import annotations

NOT_SERVED_YET = frozenset(
    {
        "allow-sagemaker",
        "allow-vertex-ai",
    }
)
"""Names without the leading dashes: booleans whose feature is off here, so that they may be given as false alone."""
