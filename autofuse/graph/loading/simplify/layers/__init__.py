"""Layers in smaller operators: attention, recurrences, statistics, spectra, what training needs."""
