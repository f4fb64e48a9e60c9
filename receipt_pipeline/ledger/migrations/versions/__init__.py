"""One module per change of the schema, oldest first."""
