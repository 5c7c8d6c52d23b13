"""``naiad perf``: measures a model's rate and latencies as clients see them.

``settings`` says what is asked for, ``steps`` what is sent, ``results`` what was found. ``load`` decides when requests
are sent, ``target`` how, ``input`` what they hold, ``measure`` when a level is stable, ``report`` how it is shown.
"""
