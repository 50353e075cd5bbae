"""``python -m gateway``: one module for each command."""
