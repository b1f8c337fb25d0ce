"""From a group of operators to loops: workloads, schedules, one room a kind of kernel."""
