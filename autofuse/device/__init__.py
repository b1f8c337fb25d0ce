"""What a device is: its profile, its target, its address, its fingerprint."""
