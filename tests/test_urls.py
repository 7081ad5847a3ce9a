"""What messages show of URLs."""

from __future__ import annotations

import pytest

from smddp_tf import urls
from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.mpirun_command import MpirunCommand
from smddp_tf.run.launch.settings import commits_at

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"ftp://me:{SECRET}@host/a@b", "ftp://***@host/a@b"),
        (f"https://{SECRET}@host:80/a", "https://***@host:80/a"),
        (f"sftp://me:{SECRET}@x@host/a", "sftp://***@host/a"),
        (f"https://h/a?sv=1&sig={SECRET}&X-Amz-Signature={SECRET}", "https://h/a?sv=1&sig=***&X-Amz-Signature=***"),
        (f"s3://bucket/a?secret_key={SECRET};token={SECRET}", "s3://bucket/a?secret_key=***;token=***"),
        ("s3://bucket/a@b?versionId=7", "s3://bucket/a@b?versionId=7"),
    ],
)
def test_secrets_of_urls_are_in_no_message(url: str, shown: str) -> None:
    assert urls.shown(f"cannot write to {url} now") == f"cannot write to {shown} now"
    assert SECRET not in MpirunCommand(("mpirun",), {"SMDDP_COMMIT_DIR": url}).shown(["true"])
    pytest.importorskip("fsspec")
    with pytest.raises(LaunchError) as raised:
        commits_at(f"nobody-knows-{url}")
    error: BaseException | None = raised.value
    while error:
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
