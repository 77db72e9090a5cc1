"""MR Sampler: fast samplers for mean-reverting diffusion."""
