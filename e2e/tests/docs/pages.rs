//! A story for each page of a list.

/// Declares a story for each page, and lists them.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        /// The pages that have commands to run.
        pub(crate) const PAGES: &[&str] = &[$($path),*];

        $(#[test]
        fn $name() {
            crate::run::page($path);
        })*
    };
}
