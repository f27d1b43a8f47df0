//! Statistics of evaluation samples.

pub mod pass_at_k;
