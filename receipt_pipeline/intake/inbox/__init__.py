"""Drop folders: bounded passes, files, moves."""
