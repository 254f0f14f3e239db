"""Conv + norm units: plain, with two branches (RC), and how a norm disappears into a conv."""
