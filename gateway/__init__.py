"""The gateway: settings, inbox, lanes, pipeline, router, outbox, servers, command line."""
