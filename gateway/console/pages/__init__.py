"""What a browser gets: one module for each page, each adds its own routes."""
