//! What is known to go wrong, and why it is still so. Whoever mends one takes it out here; the test says so.

/// Something that goes wrong.
pub(crate) struct Known {
    /// With which leaf.
    leaf: &'static str,
    /// What is said of it.
    says: &'static str,
    /// Why it is so.
    why: &'static str,
}

const fn known(leaf: &'static str, says: &'static str, why: &'static str) -> Known {
    Known { leaf, says, why }
}

/// Of leaves that are walked.
pub(crate) const WALKED: &[Known] = &[
    known("spec.storage.size", SAME, IN_OTHER_WORDS),
    known("spec.resources.requests.cpu", SAME, IN_OTHER_WORDS),
    known("spec.resources.requests.memory", SAME, IN_OTHER_WORDS),
    known("spec.resources.limits.memory", SAME, IN_OTHER_WORDS),
    known(
        "spec.members",
        "\\\"minDomains\\\": ",
        "it stands for how many members there are, and nobody is restarted for that; it counts only when a pod is created, and then \
         it is what it should be",
    ),
];

const SAME: &str = "it is not as a new one: it has [\"  ";

const IN_OTHER_WORDS: &str =
    "the same amount is written otherwise, and nobody is restarted for that";

/// Of resources that are created again over kept volumes.
pub(crate) const CREATED_AGAIN: &[Known] = &[];

/// Fails unless just what is known goes wrong.
pub(crate) fn mend(known: &[Known], wrong: &[String]) {
    let is = |known: &Known, wrong: &str| {
        wrong
            .strip_prefix(known.leaf)
            .is_some_and(|rest| rest.starts_with(", ") && rest.contains(known.says))
    };
    let news: Vec<_> = wrong
        .iter()
        .filter(|wrong| !known.iter().any(|known| is(known, wrong)))
        .cloned()
        .collect();
    assert!(news.is_empty(), "\n{}", news.join("\n"));
    let mut mended = known
        .iter()
        .filter(|known| !wrong.iter().any(|wrong| is(known, wrong)));
    if let Some(Known { leaf, says, why }) = mended.next() {
        panic!("mended, so take it out of known.rs: {leaf}: {says} ({why})");
    }
}
