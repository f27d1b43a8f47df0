//! Statistics of sampled evaluations: pass@k, majority votes, tests and intervals.

pub mod bootstrap;
mod fourier;
pub mod holm;
pub mod hypergeometric;
pub mod lattice;
pub mod majority;
pub mod measure;
pub mod paired;
pub mod pass_at_k;
