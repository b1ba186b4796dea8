"""The page in Airflow's UI: who read what of Kafka. It only looks: every route is a GET."""
