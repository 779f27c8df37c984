//! The macro that declares a story for each page.

/// Declares a story for each page, and the list `PAGES`.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        /// The pages with commands to run.
        pub(crate) const PAGES: &[&str] = &[$($path),*];

        $(#[test]
        fn $name() {
            crate::run::page($path);
        })*
    };
}
