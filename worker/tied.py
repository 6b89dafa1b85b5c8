"""`python -m worker.tied PARENT COMMAND…`: becomes the command, which ends when the process PARENT does (Linux)."""

import os
import sys

from worker.orphans import die_with_parent


def main() -> None:
    """Become the command; exit code 127 and a sentence where it cannot be run."""
    die_with_parent()
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that asked for this is gone")
    try:
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - that is what this is for
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]} cannot be started: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
