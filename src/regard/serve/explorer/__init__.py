"""The explorer: the browser page and its server side."""
