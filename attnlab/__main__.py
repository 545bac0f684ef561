"""`python -m attnlab`, for where the command is not on the path."""

import sys

if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # the working directory: its files must not shadow the standard library's

from attnlab.cli.main import main  # noqa: E402

sys.exit(main())
