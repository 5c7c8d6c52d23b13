"""The interface of Python models under Naiad's name: what ``triton_python_backend_utils`` is in a model's process."""

from naiad.worker.api.pb_utils import *  # noqa: F403
