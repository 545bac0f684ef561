"""`python -m attnlab`, for where the command is not on the path."""

import os
import sys

if not sys.flags.safe_path:
    # The files of the working directory are imported no more than by the command, unless it is a checkout that runs itself.
    folder = sys.path.pop(0)
    if os.path.dirname(os.path.dirname(os.path.abspath(__file__))) == os.getcwd():
        sys.path.append(folder)

from attnlab.cli.main import main  # noqa: E402

sys.exit(main())
