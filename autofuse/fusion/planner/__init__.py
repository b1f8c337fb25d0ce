"""From decisions to a plan: questions, growth of groups, rewriting, and the fixed plans."""
