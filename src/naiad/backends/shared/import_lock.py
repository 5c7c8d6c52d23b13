"""The lock that lets one thread at a time import frameworks, and what they import later.

Threads that import modules which import each other would each wait for a module that the other one is importing. Python
then gives one of them a module that is not complete, or raises an error: so it is with Keras and TensorFlow, and with
the parts of scikit-learn.
"""

from __future__ import annotations

import threading
from typing import Final

IMPORT_LOCK: Final = threading.Lock()
