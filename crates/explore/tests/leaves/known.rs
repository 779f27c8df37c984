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
    known(
        "spec.version",
        "nothing is in force, and nobody heals: spec.etcd.options",
        "accept::in_force takes back the field that is named as refused, which is not the one that was edited: of it nothing \
         better is noted",
    ),
    known(
        "spec.resources.requests.memory",
        "nothing is in force, and nobody heals: spec.resources.limits",
        "the same: it was the request that was edited",
    ),
    known(
        "spec.storage.size",
        "and Rust does not; it comes to: Re",
        "accept::Before::kept does not know of it; the quota follows the size, and so members are restarted, or replaced",
    ),
    known("spec.storage.size", "Nothing is expected, and there is Replaced", AS_WRITTEN),
    known("spec.resources.requests.cpu", "Nothing is expected, and there is Re", AS_WRITTEN),
    known("spec.resources.requests.memory", "Nothing is expected, and there is Re", AS_WRITTEN),
    known("spec.resources.limits.memory", "Nothing is expected, and there is Re", AS_WRITTEN),
    known("spec.etcd.autoCompaction", "Nothing is expected, and there is Re", AS_WRITTEN),
    known(
        "spec.storage.class",
        "and Rust does not; it comes to: Nothing",
        "accept::Before::kept does not know of it; the next member gets another class than the others have",
    ),
    known(
        "spec.service.annotations",
        "it is not as a new one: it has [\"          \\\"a.example/",
        "covers() takes what is no longer wanted for somebody else's, so that nothing is applied; and what a Service was created \
         with belongs to another manager of fields than what is applied",
    ),
    known(
        "spec.members",
        "\\\"minDomains\\\": ",
        "it stands for how many members there are, and nobody is restarted for that; it counts only when a pod is created, and then \
         it is what it should be",
    ),
    known("spec.scheduling.nodeSelector", "{\"a disk\":\"ssd\"}: nobody refuses it", UNCHECKED),
    known("spec.scheduling.nodeSelector", "{\"disk\":\"an ssd\"}: nobody refuses it", UNCHECKED),
    known("spec.scheduling.tolerations[].operator", "\"Maybe\": nobody refuses it", UNCHECKED),
    known("spec.scheduling.tolerations[].effect", "\"Never\": nobody refuses it", UNCHECKED),
    known("spec.scheduling.priorityClass", "\"High!\": nobody refuses it", UNCHECKED),
    known("spec.service.annotations", "{\"a b\":\"c\"}: nobody refuses it", UNCHECKED),
];

const AS_WRITTEN: &str = "amounts and durations are among the inputs as they are written, the quota apart: 4Gi is not 4096Mi there, nor a \
     default that is written what it is when it is left out";

const UNCHECKED: &str = "Kubernetes takes no pod, or Service, with it: the first member that is restarted does not come back, and none that \
     fails can, until it is taken back";

/// Of resources that are created again over kept volumes.
pub(crate) const CREATED_AGAIN: &[Known] = &[
    known(
        "spec.storage.size",
        "3221225472) becomes (Persistent { size: \"8Gi\", class: None, owned: false }, 6442450944)",
        "accept::Before::kept does not know of it, and there is no oldSelf for the schema to look at: etcd may take more than the volume \
         has",
    ),
    known(
        "spec.storage.class",
        "class: Some(\"fast\")",
        "the same; the next member gets another class than the others have",
    ),
];

/// Fails unless just what is known goes wrong.
pub(crate) fn mend(known: &[Known], wrong: &[String]) {
    let is = |known: &Known, wrong: &str| {
        wrong.strip_prefix(known.leaf).is_some_and(|rest| rest.starts_with(", ") && rest.contains(known.says))
    };
    let news: Vec<_> =
        wrong.iter().filter(|wrong| !known.iter().any(|known| is(known, wrong))).cloned().collect();
    assert!(news.is_empty(), "\n{}", news.join("\n"));
    for Known { leaf, says, why } in known.iter().filter(|known| !wrong.iter().any(|wrong| is(known, wrong)))
    {
        panic!("mended, so take it out of known.rs: {leaf}: {says} ({why})");
    }
}
