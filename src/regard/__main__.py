"""``python -m regard``: the command line, where the script is not on the path."""

import sys

from regard.cli import main

sys.exit(main())
