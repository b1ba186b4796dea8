"""Which pyspark goes with which pyspark-client."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.launch.spark_versions import check_versions_agree


@pytest.mark.parametrize(
    ("pyspark", "client"),
    [("4.0.0", "4.0.0"), ("4.0.5", "4.0.4"), ("4.2.1", "4.2.0"), ("4.1.0.dev1", "4.1.0"), (None, "4.2.0"), ("4.0.0", None)],
)  # fmt: skip
def test_one_feature_release_goes_together(pyspark: str | None, client: str | None) -> None:
    check_versions_agree(pyspark, client)


@pytest.mark.parametrize(
    ("pyspark", "client", "common"),
    [("4.3.0", "4.2.0", "4.2"), ("4.0.0", "4.2.0", "4.0"), ("4.10.0", "4.9.1", "4.9"), ("3.5.7", "4.2.0", "4.2")],
)
def test_two_are_refused_with_a_release_that_both_have(pyspark: str, client: str, common: str) -> None:
    with pytest.raises(BadInputError, match=rf"^pyspark {pyspark} and pyspark-client {client} ") as caught:
        check_versions_agree(pyspark, client)
    assert f"pip install 'pyspark=={common}.*' 'pyspark-client=={common}.*'" in str(caught.value)
