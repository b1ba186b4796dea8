"""A DAG that can be asked for a replay; its task returns what it was asked for."""

from airflow.sdk import dag, get_current_context, task

from airflow_kafka_offsets import replay_params


@dag("form", dag_display_name="orders", schedule=None, params=replay_params())
def form():
    @task
    def asked() -> dict:
        context = get_current_context()
        return {"params": dict(context["params"]), "conf": context["dag_run"].conf}

    asked()


form()
