"""Help where a rollout fails: functions that wrap a rollout."""
