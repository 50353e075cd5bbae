"""The console listener: web chat, read routes, login."""
