"""The worker: the program that runs a Python model in a process of its own.

Everything in this folder runs under any Python from 3.8 on, with nothing but the standard library and numpy: a model
may have an environment of its own, in which Naiad is not installed. It imports nothing from the rest of Naiad, and is
known there as ``naiad.worker`` and in the worker as ``naiad_worker``.
"""
