"""`python -m attnlab`, for where the command is not on the path."""

import sys

from attnlab.cli import main

sys.exit(main())
