"""Graphs of images in other forms, which compute the same and whose sizes may stay open."""
