"""Parameters of TensorFlow models. Source: the README of the reference's tensorflow backend."""

from __future__ import annotations

from naiad.config.known_parameters.parameter import KnownParameter

PARAMETERS = (
    KnownParameter("TF_NUM_INTRA_THREADS", "threads of one operator; 0 divides the cores among the sessions"),
    KnownParameter("TF_NUM_INTER_THREADS", "operators beside each other; 0 runs them in the instance's own thread"),
    KnownParameter("TF_USE_PER_SESSION_THREADS", "whether a session has threads of its own for operators"),
    KnownParameter("TF_GRAPH_TAG", "the tags of the graph in a SavedModel, with commas between them"),
    KnownParameter("TF_SIGNATURE_DEF", "the signature of a SavedModel that is served"),
    KnownParameter("MAX_SESSION_SHARE_COUNT", "how many instances share a session; all of them without it"),
    KnownParameter("TF_INIT_OPS_FILE", "a JSON file with the operators that initialise the graph"),
)
