"""``python -m lyceum``: the command line."""

import sys

from lyceum.cli import main

sys.exit(main())
