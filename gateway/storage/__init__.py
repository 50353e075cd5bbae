"""What stands in ``gateway.db``: the inbox and whatever else must survive a restart, one module for each of its tables."""
