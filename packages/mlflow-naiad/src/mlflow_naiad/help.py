"""The text of ``mlflow deployments help -t naiad``."""

from __future__ import annotations

from typing import Final

HELP: Final = """\
The target 'naiad' is a running Naiad server: 'naiad', or 'naiad:http://host:port'. Without an address it is that of
NAIAD_URL, else of TRITON_URL, else localhost:8000. NAIAD_API_KEY is sent as 'Authorization: Bearer ...'.

The server needs --model-control-mode=explicit, and MLFLOW_TRACKING_URI in its environment: it fetches the files of a
model from MLflow's store by itself.

Models: models:/<name>/<version>, models:/<name>@<alias>, models:/<id>, runs:/<run>/<name>. An alias is looked up
once, by create and update; a later move of the alias changes nothing.

Flavors: onnx, pytorch (pt2), tensorflow, keras, xgboost, sklearn (skops; pickles with
--backend-config=fil,allow-pickle=true), pyfunc, triton (a model folder with a config.pbtxt). Without --flavor the first
one that a backend of the server reads.

Options, each as -C NAME=VALUE:
  config=FILE          a config.pbtxt, or JSON, that the model's configuration begins with
  max_batch_size=N     how many rows a batch may have
  instances=N          how many instances run
  parameters.NAME=TEXT a parameter of the configuration, such as parameters.python=/envs/iris/bin/python for pyfunc
  canary=PERCENT       update only: serve the version beside the present one, with this share of the requests
  repository=FOLDER    a folder that the server serves: the deployment is written there, and outlasts a restart

'update -C canary=0' puts a version beside the present one without requests; 'update' without -C canary gives all
requests to the version and unloads the others.
"""
