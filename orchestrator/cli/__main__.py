"""`python -m orchestrator.cli` is `tokfleet`."""

import sys

from orchestrator.cli import main

sys.exit(main())
