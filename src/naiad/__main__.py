"""``python -m naiad``: the same as the ``naiad`` command."""

import sys

from naiad.cli.main import main

sys.exit(main())
