"""``python -m tests.torture``: kill a study at random moments and check its promises."""

import sys

from tests.torture.harness import main

sys.exit(main())
