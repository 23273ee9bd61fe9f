"""What reports say of pools, beside what the papers say."""
