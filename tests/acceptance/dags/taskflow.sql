-- {{ dag.dag_id }}: one statement, which a rerun of the window repeats; the window's id is known when it runs, not to Jinja.
INSERT OVERWRITE DIRECTORY '{{ params.lake }}/window_id=${window_id}' USING parquet
SELECT `partition`, `offset`, CAST(value AS STRING) AS value FROM kafka_window;

SELECT assert_true(COUNT(*) = :span, 'not all records are there') FROM parquet.`{{ params.lake }}/window_id=${window_id}`;
