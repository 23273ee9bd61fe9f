"""``python -m testbed`` is the command ``testbed``."""

import sys

from testbed.cli import main

sys.exit(main())
