"""Messages, review tasks, alerts, object records and retention."""
