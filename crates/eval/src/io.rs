//! Files, servers, programs and signals.

pub mod confined;
pub mod files;
pub mod harmless;
pub mod interrupt;
pub mod json;
pub mod lines;
pub mod machine;
pub mod objects;
pub mod poll;
pub mod process_group;
pub mod server;
pub mod shell;
