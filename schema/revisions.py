"""The revisions of the database schema (a module of its own: reading it costs no SQLAlchemy)."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""Every revision in `migrations/versions`, oldest first; the last is the one this code works with."""
