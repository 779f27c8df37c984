//! Which files are docs.

use std::io;
use std::path::{Path, PathBuf};

/// Directories that are not ours, or not written by hand.
const NOT_OURS: [&str; 4] = [".git", "bin", "target", "node_modules"];

/// Every Markdown file of the checkout, by its path from there, in order.
pub fn all(checkout: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = vec![PathBuf::new()];
    while let Some(directory) = rest.pop() {
        for entry in checkout.join(&directory).read_dir()? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = directory.join(&name);
            if entry.file_type()?.is_dir() {
                if !NOT_OURS.contains(&name.as_str()) {
                    rest.push(path);
                }
            } else if path.extension().is_some_and(|it| it == "md") {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Those for users: the README, and all below `docs`.
pub fn for_users(checkout: &Path) -> io::Result<Vec<String>> {
    let is_for_users = |path: &String| path == "README.md" || path.starts_with("docs/");
    Ok(all(checkout)?.into_iter().filter(is_for_users).collect())
}
