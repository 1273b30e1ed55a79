"""Files that logs of decisions come in, and go out as: cohort tables, Minari, D4RL, RLlib."""
