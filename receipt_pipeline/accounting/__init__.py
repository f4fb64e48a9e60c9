"""Accounts for every accepted job: export, report, gate; the only room that knows DuckDB."""
