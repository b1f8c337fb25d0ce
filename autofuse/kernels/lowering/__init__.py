"""From a plan to workloads: layouts, coverage, memory."""
