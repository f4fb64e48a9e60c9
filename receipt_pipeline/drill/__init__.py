"""Failure drills: plans that act at core's failure points, shipped to users."""
