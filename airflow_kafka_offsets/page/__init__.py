"""The page in Airflow's UI: which run read which offsets. It only looks: every route is a GET."""

TITLE = "Kafka windows"

PREFIX = "kafka-offsets"
"""Where the app is, below Airflow's own address."""

NAV = "kafka-windows"
"""The route of the navigation entry in Airflow's UI. What comes after it is the address of the page in the frame."""
