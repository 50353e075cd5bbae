"""The three bridges: one module or folder per platform, and what they share."""
