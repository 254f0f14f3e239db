"""From a trained checkpoint to what is deployed, with proof that nothing was lost and nothing was added."""
