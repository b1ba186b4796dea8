"""PySpark functions for windows that several DAGs have in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.lab.holds import slowly_until_released


def load(spark: Any, window: Any, name: str) -> dict[str, Any]:
    """Write the window where a rerun replaces it, also over Spark Connect, and say what was done; or fail once, when told to."""
    from pyspark.sql import functions as F

    lab = os.environ["LAB"]
    fails = Path(f"{lab}/hold/{name}.fail-{window.id}")
    if fails.exists():
        fails.unlink()
        raise RuntimeError(f"{window.id} is told to fail")
    slowly = F.udf(slowly_until_released(f"{lab}/hold/{name}"), "string")
    # Not read(), of which a busy Spark Connect server may report no count: what these DAGs show is what comes before and after.
    with window.persisted() as frame:
        records = frame.select("partition", "offset", slowly("value").alias("value"))
        records.write.mode("overwrite").parquet(f"{lab}/lake/{name}/window_id={window.id}")
    return {"seq": window.seq, "is_rerun": window.is_rerun, "span": window.span}
