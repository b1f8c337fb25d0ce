"""The views that people look at: plans explained and drawn, models inspected, the database as DataFrames and as a
page."""
