"""How a result is shown and stored: the screen, the JSON file, the table of requests."""
