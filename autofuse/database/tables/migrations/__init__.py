"""Alembic's environment: one file a schema revision in `versions`."""
