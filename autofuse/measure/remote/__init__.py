"""Devices elsewhere: the coordinator's end, the device's end, and races on it."""
