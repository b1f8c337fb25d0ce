"""The schedules of one workload: which is tried next, what is known of each, what more search may gain."""
