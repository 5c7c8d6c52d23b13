"""The interface of Python models under Naiad's name; in a worker it is ``triton_python_backend_utils``."""

from naiad.worker.api.pb_utils import *  # noqa: F403
