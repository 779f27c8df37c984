//! The docs as a program reads them, so that they cannot lie: [`page`] finds the commands of a page and what it says that they
//! show, [`shape`] tells whether they still do, [`links`] follows every link. The stories in `e2e/tests/docs` run the commands.

pub mod files;
pub mod links;
mod notes;
pub mod page;
pub mod shape;

pub use page::{Block, Page, Shown};
