"""Rules on values: offsets, ranges, planning, a window's life, JSON forms, errors.

Standard library only: no clock, no network, no SQL, no Airflow.
"""
