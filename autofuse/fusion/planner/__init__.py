"""The planner turns decisions into a plan: questions, growth of groups, rewriting, and the fixed plans."""
