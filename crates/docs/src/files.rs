//! The list of documentation files.

use std::io;
use std::path::{Path, PathBuf};

/// Directories without documentation of this project.
const IGNORED_DIRECTORIES: [&str; 4] = [".git", "bin", "target", "node_modules"];

/// Returns the path of every Markdown file in the checkout, sorted.
pub fn markdown_files(checkout: &Path) -> io::Result<Vec<String>> {
    let mut pages = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(directory) = pending.pop() {
        for entry in checkout.join(&directory).read_dir()? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = directory.join(&name);
            if entry.file_type()?.is_dir() {
                if !IGNORED_DIRECTORIES.contains(&name.as_str()) {
                    pending.push(path);
                }
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path.to_string_lossy().into_owned());
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Returns the pages for users: the README and everything below `docs`.
pub fn user_pages(checkout: &Path) -> io::Result<Vec<String>> {
    let is_for_users = |path: &String| path == "README.md" || path.starts_with("docs/");
    Ok(markdown_files(checkout)?
        .into_iter()
        .filter(is_for_users)
        .collect())
}
