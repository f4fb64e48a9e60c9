"""The Dagster room: assets, checks, sensors and jobs; each one calls a service."""
