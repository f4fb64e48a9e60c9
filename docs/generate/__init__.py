"""Generates the pages of `docs/` that restate tables of the code: `make docs`."""
