"""Tells people when example.orders is stalled, needs another run, may lose unread records or has lost some; and when all is well again.

A run fails if someone has to act: attach to the DAG whatever tells you of failed runs, e.g. a notifier as on_failure_callback.
"""

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_kafka_offsets import KafkaGroup, KafkaVerdictTrigger

orders = KafkaGroup("example.orders", topics=["orders"], kafka_conn_id="kafka_default")

change = KafkaVerdictTrigger(group=orders, verdicts=["STALLED", "NEEDS RERUN", "AT RISK", "LOST"], poll_interval=60)
changed = Asset("example_orders_verdict", watchers=[AssetWatcher(name="example_orders_verdict", trigger=change)])

with DAG("example_orders_verdict", schedule=[changed], max_active_runs=1) as dag:

    @task
    def tell(triggering_asset_events=None) -> str:
        """Say what changed, or fail with it: several changes may start one run."""
        seen = [event.extra["payload"] for event in triggering_asset_events[changed]]
        said = "; ".join(one.get("error") or f"{one['group']} is {one['verdict']}: {one['reason']}" for one in seen)
        if all(one.get("verdict") == "OK" for one in seen):
            return said
        raise AirflowFailException(said)

    tell()
