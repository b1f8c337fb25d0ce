"""Levels: numbers that are rounded to bytes and back, and tables of functions of one byte."""
