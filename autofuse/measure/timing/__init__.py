"""When a time counts: the clock probe, gated slices, interleaved races, one lock a device."""
