"""Recurrences of LSTM, GRU and RNN: what they compute, their cells, their kernel, their knobs."""
