"""Every figure that a report shows, defined once. Functions take records, never the engine. See docs/metrics.md."""
