//! Reads the documentation so that tests can execute it: [`page`] extracts the commands of a page
//! and their expected output, [`normalize`] compares actual with expected output, [`links`] checks
//! every link. `e2e/tests/docs` runs the commands.

mod directives;
pub mod files;
pub mod links;
pub mod normalize;
pub mod page;

pub use page::{CommandBlock, ExpectedOutput, Page};
