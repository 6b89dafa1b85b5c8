"""The revisions of the database schema (a module of its own: reading it costs no SQLAlchemy)."""

REVISIONS = ("0001", "0002", "0003")
"""Every revision in `migrations/versions`, oldest first; the last is the one this code works with."""
