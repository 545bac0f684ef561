"""`python -m attnlab`, for where the command is not on the path."""

import sys

from attnlab.cli.main import main

sys.exit(main())
