"""Off-policy evaluation: what a policy is worth, estimated from a log that others made. Pure, numpy."""
