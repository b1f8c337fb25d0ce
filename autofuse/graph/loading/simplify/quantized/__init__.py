"""Quantised models in one form: products of integers with int32 sums, their scales behind them."""
