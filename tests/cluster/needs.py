"""Say what a lab of namespaces lacks on this machine; ends with 1 where something is missing."""

import sys

from tests.cluster.lab import missing


def main() -> int:
    """Print one sentence for each thing that is missing."""
    lacks = missing()
    for sentence in lacks:
        print(f"make test-cluster: {sentence}", file=sys.stderr)
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main())
