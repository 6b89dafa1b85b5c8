"""Everything that can go wrong, as one tree.

TokfleetError                 the command line prints it and ends with `exit_code`
├── UsageError                the command was asked for something it cannot mean (2)
├── SweepError                the sweep file: file, line, key and what was meant (2)
├── PlanError                 a valid sweep that cannot be run as it stands (1)
├── ModelError                a model file cannot be found, read or made (1)
├── HostError                 this machine's own facts, lock, directories (1)
├── StoreError                the database cannot be used as it is (1)
│   ├── SchemaMismatchError        it is older or newer than this code (1)
│   └── StoreUnavailableError      locked, full, read-only: nothing is wrong with what was to be written (1)
├── SqlError                  a question in SQL that cannot be answered (1)
└── ClusterError              Ray cannot be started, reached or used (1)

A failed *job* is none of these: it is data, `schema.record.Failure`.
"""


class TokfleetError(Exception):
    """Root of the tree; its text is one or two complete sentences for the person at the terminal."""

    exit_code = 1


class UsageError(TokfleetError):
    """The command line asks for something that has no meaning."""

    exit_code = 2


class SweepError(TokfleetError):
    """The sweep file is not one; `problems` holds every fault found, one line each."""

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class PlanError(TokfleetError):
    """The sweep is valid but cannot be run here as it stands."""


class ModelError(TokfleetError):
    """A model file cannot be found, read or made."""


class HostError(TokfleetError):
    """Something of this machine (a directory, a lock, its identity) is not usable."""


class StoreError(TokfleetError):
    """The database cannot be used as it is."""


class SchemaMismatchError(StoreError):
    """The database's schema is older or newer than this code."""


class StoreUnavailableError(StoreError):
    """The database cannot be written just now; the same rows may be accepted later."""


class SqlError(TokfleetError):
    """A question in SQL that cannot be answered, or may not be."""


class ClusterError(TokfleetError):
    """Ray cannot be started, reached or used."""
