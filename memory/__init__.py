"""What was said: conversation ids, YAML files, the window the model sees."""
