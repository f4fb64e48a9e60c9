"""The transactional truth: tables, guarded transitions, and the queries that read them."""
