"""A real server of the S3 protocol on this machine, in a process of its own, for the time of a test."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "bucket"
NEEDED = ("moto", "flask", "flask_cors", "s3fs")

# Ends when the pipe to its input is closed, so with the test at the latest.
_PROGRAM = f"""
import logging, sys
from moto.server import ThreadedMotoServer
import boto3
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = "http://%s:%d" % server.get_host_and_port()
keys = dict(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="{BUCKET}")
print(url, flush=True)
sys.stdin.read()
"""


def why_none() -> str:
    """Why there can be no server here, or ""."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(missing)} (the extra `test` has them)" if missing else ""


def variables(url: str) -> dict[str, str]:
    """The environment in which s3:// leads to the server; no file of the user's counts."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    return {"AWS_ENDPOINT_URL": url, "AWS_CONFIG_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true", **keys}


@contextmanager
def object_store() -> Iterator[str]:
    """Inside, the address of a server with an empty bucket."""
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            assert url, f"the server has ended with {process.wait(10)}"
            yield url
        finally:
            process.kill()
