"""What answers: agents, their prompts, the model clients."""
