"""``naiad convert``: exports, converts, verifies, measures, chooses and publishes a model.

``settings`` says what is asked for, ``paths`` which formats can be reached and how. ``steps`` has the steps, each of
which runs in a process of its own (``step_program``, ``process``); ``run`` connects them. ``choose`` names the best,
``publish`` writes a model repository, ``package`` keeps all of it in one file, ``report_text`` and ``report_html`` show
it.
"""
