"""Parameters of forests. Source: the model configuration page of the reference's fil backend."""

from __future__ import annotations

from naiad.config.known_parameters.parameter import GPU, KnownParameter

PARAMETERS = (
    KnownParameter("model_type", "the format: xgboost_json, xgboost_ubj, xgboost, lightgbm, treelite_checkpoint, ..."),
    KnownParameter("output_class", "whether the output is the number of a class"),
    KnownParameter("is_classifier", "the same as output_class, as later releases call it"),
    KnownParameter("predict_proba", "whether the output has a probability for each class"),
    KnownParameter("threshold", "the probability above which a binary classifier says 1; 0.5 by default"),
    KnownParameter("threads", "threads of an instance for large batches; 1 by default"),
    KnownParameter("xgboost_allow_unknown_field", "whether unknown fields of an XGBoost JSON file are passed over"),
    KnownParameter("use_experimental_optimizations", "accepted: another way of the reference to run forests"),
    KnownParameter("storage_type", "how trees lie in the memory of a GPU", GPU),
    KnownParameter("algo", "how nodes lie in the memory of a GPU", GPU),
    KnownParameter("blocks_per_sm", "blocks for each processor of a GPU", GPU),
    KnownParameter("threads_per_tree", "threads of a GPU for each tree", GPU),
    KnownParameter("layout", "the same as algo, as later releases call it", GPU),
    KnownParameter("chunk_size", "the same as threads_per_tree, as later releases call it", GPU),
    KnownParameter("transfer_threshold", "batches of more rows are copied to a GPU", GPU),
)
