"""What happened to each message: noted step by step, kept in ``trace.db``, counted for the metrics."""
