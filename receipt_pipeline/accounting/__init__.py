"""Accounts for every accepted job: refresh, publication, figures, gate; the only package that uses DuckDB."""
