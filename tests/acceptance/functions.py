"""PySpark functions for windows that several DAGs have in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def slowly_until_released(name: str) -> Any:
    """Return a function of Spark that stops in the middle of the write while the hold file is there."""
    hold = f"{os.environ['LAB']}/hold/{name}"

    def slowly(value: bytes) -> str:
        import pathlib
        import time

        while pathlib.Path(hold).exists():
            pathlib.Path(hold + ".reached").touch()
            time.sleep(0.1)
        return bytes(value).decode()

    return slowly


def load(spark: Any, window: Any, name: str) -> dict[str, Any]:
    """Write the window where a rerun replaces it, also over Spark Connect, and say what was done; or fail once, when told to."""
    from pyspark.sql import functions as F

    lab = Path(os.environ["LAB"])
    fails = lab / "hold" / f"{name}.fail-{window.id}"
    if fails.exists():
        fails.unlink()
        raise RuntimeError(f"{window.id} is told to fail")
    slowly = F.udf(slowly_until_released(name), "string")
    records = window.read().select("partition", "offset", slowly("value").alias("value"))
    records.write.mode("overwrite").parquet(f"{lab}/lake/{name}/window_id={window.id}")
    return {"seq": window.seq, "is_rerun": window.is_rerun, "span": window.span}
