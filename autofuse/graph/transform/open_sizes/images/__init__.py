"""Images whose sizes stay open: where these stand in a graph, what operators see around a place, graphs of tiles."""
