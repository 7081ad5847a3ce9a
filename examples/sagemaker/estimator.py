"""Starts train.py on two hosts of Amazon SageMaker: `python estimator.py IMAGE ROLE s3://BUCKET/DATA/`.

For version 2 of the SageMaker Python SDK: `pip install 'sagemaker<3'`. The image is docker/Dockerfile.sagemaker's, in
ECR. Without `image_uri` the SDK refuses the distribution "smdistributed" for TensorFlow 2.12 and later, because it
looks for an image of AWS, and those have SMDDP up to TensorFlow 2.11 only.
"""

import sys

from sagemaker.tensorflow import TensorFlow

image, role, data = sys.argv[1:]
estimator = TensorFlow(
    entry_point="train.py",
    source_dir=".",  # requirements.txt is installed on every host
    image_uri=image,
    role=role,
    instance_count=2,
    instance_type="ml.c5.4xlarge",
    hyperparameters={"epochs": 3, "learning-rate": 0.02},  # --epochs 3 --learning-rate 0.02
    # Or {"mpi": {"enabled": True, "processes_per_host": 2, "custom_mpi_options": ...}}.
    distribution={
        "smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": "-verbose -x NCCL_DEBUG=VERSION"}}
    },
    model_dir=False,  # no --model_dir: train.py writes to SM_MODEL_DIR
    checkpoint_s3_uri=f"{data.rstrip('/')}-checkpoints",  # what /opt/ml/checkpoints becomes
    max_run=3600,
)
estimator.fit({"train": data})  # SM_CHANNEL_TRAIN
