//! Differences between previews and the model that are known and accepted. A test fails when one of them no longer
//! occurs, so that it is removed.

use evenkeel_explorer::event::ModelEvent;
use evenkeel_explorer::model::TemplateVariant;

use crate::states::State;

/// The maximum number of differences that a failed test prints.
const MAX_PRINTED: usize = 5;

/// A known difference.
#[derive(Clone, Copy)]
pub(crate) struct KnownDifference {
    /// Returns true for the event that is the cause.
    is_cause: fn(&ModelEvent) -> bool,
    /// Why the difference is accepted.
    reason: &'static str,
}

/// A template with which etcd does not start.
pub(crate) const BROKEN_TEMPLATE: KnownDifference = KnownDifference {
    is_cause: |event| matches!(event, ModelEvent::TemplateEdited(TemplateVariant::Broken)),
    reason: "the facts do not show whether etcd starts with a template; a preview states the assumption that it does",
};

/// A data directory that was emptied.
pub(crate) const WIPED_DISK: KnownDifference = KnownDifference {
    is_cause: |event| matches!(event, ModelEvent::DiskWiped(_)),
    reason: "the facts do not show what is in a data directory before the kubelet reports that etcd crashes on it",
};

/// Fails unless previews from all states match the model, apart from the known differences, which must occur.
pub(crate) fn check(states: impl IntoIterator<Item = State>, known: &[KnownDifference]) {
    let (mut unexpected, mut occurred, mut count) = (Vec::new(), vec![false; known.len()], 0);
    for state in states {
        count += 1;
        let Some(difference) = state.difference() else {
            continue;
        };
        let is_cause = |known: &KnownDifference| state.events.iter().any(known.is_cause);
        match known.iter().position(is_cause) {
            Some(at) => occurred[at] = true,
            None => unexpected.push(format!("{state}:\n{difference}")),
        }
    }
    println!("{count} states");
    let first = &unexpected[..unexpected.len().min(MAX_PRINTED)];
    assert!(
        unexpected.is_empty(),
        "{} previews differ, the first are:\n{}",
        unexpected.len(),
        first.join("\n")
    );
    let no_longer = known.iter().zip(occurred).find(|(_, occurred)| !occurred);
    assert!(
        no_longer.is_none(),
        "no longer differs: {}",
        no_longer.map(|(known, _)| known.reason).unwrap_or_default()
    );
}
