"""Predict the time of calls on machines that are not here: the plans of a call, on a clock."""
