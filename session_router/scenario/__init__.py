"""Scenarios: conversations with the clock in view, on the real engine, with a scripted model.

``files`` reads a scenario file, ``play`` runs it step by step, ``stage`` is the engine that both it
and the Python stories run on, ``story`` the vocabulary of those.
"""
