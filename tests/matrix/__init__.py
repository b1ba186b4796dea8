"""One job, run by a real spark-submit on each version of Spark: `make test-matrix`."""
