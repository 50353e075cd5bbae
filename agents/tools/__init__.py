"""Tools: what a model may call while it answers."""
