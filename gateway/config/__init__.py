"""The config folder → settings: read, checked, explained, taken over again when it changes."""
