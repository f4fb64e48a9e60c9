"""Dagster's assets, checks, sensors, schedules and jobs; each calls one function of `app/`."""
